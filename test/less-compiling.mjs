// V8 compiles optimised code of what has run for a while. Processes of tests end before that has paid: here it begins sixteen times as
// late, which takes a twelfth of the processor time off a file of tests of agents. Newer versions have no such setting.
// The parser of `fetch` is one function of WebAssembly, whose optimised code takes a second and 80 MB to make.
import { setFlagsFromString } from "node:v8";

if (process.versions.v8?.startsWith("11.3.")) {
  setFlagsFromString("--interrupt-budget=1081344");
  setFlagsFromString("--wasm-tiering-budget=1000000000");
}
