/** The chunks of one stream: texts and bytes, some of characters of several bytes, some far larger than a buffer of 16 KiB. */
export function chunksOf(seed: number): (string | Uint8Array)[] {
  let state = seed;
  const upTo = (most: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 0x8000_0000;
    return 1 + (Math.floor(state / 65_536) % most);
  };
  return Array.from({ length: 150 }, (_, index) => {
    const length = upTo([20, 500, 9_000, 16_384, 30_000, 32_000][upTo(6) - 1]!);
    const text = ["a", "ü", "字", "🌊"][index % 4]!.repeat(Math.ceil(length / (1 + (index % 4))));
    return index % 3 === 0 ? Buffer.from(`${index}${text}`) : `${index}${text}`;
  });
}

/** A text whose bytes are about as many as the addon buffers, or far more. */
export const wholeOf = (seed: number): string => "aü".repeat(5_430 + seed + (seed > 8 ? 100_000 : 0));
