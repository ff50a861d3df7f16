// Preloaded into a process whose clock a test sets: `CLOCK_AHEAD` milliseconds away from the machine's from the start, and an hour
// further back with every SIGUSR2.
const System = globalThis.Date;
let ahead = Number(process.env.CLOCK_AHEAD ?? 0);

globalThis.Date = class extends System {
  constructor(...given) {
    if (given.length === 0) super(globalThis.Date.now());
    else super(...given);
  }
  static now() {
    return System.now() + ahead;
  }
};

process.on("SIGUSR2", () => {
  ahead -= 3_600_000;
  process.stderr.write(`the clock is ${ahead} ms ahead\n`);
});
