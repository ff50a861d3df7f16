// V8 compiles optimised code of what has run for a while. Processes of tests end before that has paid: here it begins sixteen times as
// late, which takes a twelfth of the processor time off a file of tests of agents. Newer versions have no such setting.
import { setFlagsFromString } from "node:v8";

if (process.versions.v8?.startsWith("11.3.")) setFlagsFromString("--interrupt-budget=1081344");
