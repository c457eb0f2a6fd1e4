// What the adapter uses of node itself. fetch and the like are in the library "dom".
declare const process: {
  stdin: AsyncIterable<Uint8Array>;
  stdout: { write(line: string): boolean; once(event: "drain", then: () => void): void };
  exit(code: number): never;
};
declare const Buffer: { from(text: string, encoding: "base64"): { toString(encoding: "utf8"): string } };
