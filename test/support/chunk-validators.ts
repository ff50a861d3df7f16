/** The checks by which the AI SDK's clients accept or refuse a chunk of a UI message stream. */

interface ChunkSchema {
  validate?(value: unknown): Promise<{ success: boolean }> | { success: boolean };
}

const CLIENTS = ["ai-5", "ai-6.0.0", "ai", "ai-7"];

/** Name of each client, and whether it accepts a chunk. */
export async function clientChecks(): Promise<[string, (chunk: unknown) => Promise<boolean>][]> {
  return Promise.all(
    CLIENTS.map(async (client): Promise<[string, (chunk: unknown) => Promise<boolean>]> => {
      const { uiMessageChunkSchema } = (await import(client)) as { uiMessageChunkSchema: () => ChunkSchema };
      const { validate } = uiMessageChunkSchema();
      if (validate === undefined) throw new Error(`${client} has no check of its own`);
      return [client, async (chunk) => (await validate(chunk)).success];
    }),
  );
}
