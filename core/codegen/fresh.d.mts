export declare const STAMP: string;
export declare function digestOfSources(root: string): string;
export declare function freshBundle(root: string): URL | null;
