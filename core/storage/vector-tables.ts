/** The interface of stores whose database can compare vectors: tables of vectors beside the rows from which they are derived. */

/** Which rows have a vector. */
export interface VectorRows {
  readonly prefix: string;
  /** The vector in the value of such a row. */
  decode(value: string): Float32Array;
}

interface NearestQuery {
  /** What the keys begin with. */
  readonly prefix: string;
  readonly vector: Float32Array;
  readonly limit: number;
}

/**
 * Keys of rows that may be the nearest: vectors are compared roughly, and a row may be gone or have changed. Whoever asks compares the
 * rows again.
 */
export interface NearestKeys {
  /** Roughly in order. */
  readonly keys: readonly string[];
  /** Rows whose present vector is not in the tables yet. Each of them may be among the nearest. */
  readonly unfilled: readonly string[];
}

export interface VectorTables {
  /** By their distance. Null: so many rows are not in the tables yet that another way is better. */
  nearest(query: NearestQuery): Promise<NearestKeys | null>;
  /** Rows may have changed: they are brought into the tables in the background. Returns at once. */
  wake(): void;
  /** Resolves when nothing is done in the background. */
  idle(): Promise<void>;
}
