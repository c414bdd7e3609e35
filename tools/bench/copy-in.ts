import pg from 'pg';

/** The part of pg's connection that sends COPY data. The driver has it, but its types do not. */
interface CopyConnection {
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
}

/** Runs `copy … from stdin` with the chunks as its input; resolves when the server has received all of it. */
export function copyIn(client: pg.Client, statement: string, chunks: Buffer[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const query = new pg.Query(statement) as pg.Query & {
      callback: (error: Error | null) => void;
      handleCopyInResponse(connection: CopyConnection): void;
    };
    query.callback = (error) => (error ? reject(error) : resolve());
    query.handleCopyInResponse = (connection) => {
      for (const chunk of chunks) connection.sendCopyFromChunk(chunk);
      connection.endCopyFrom();
    };
    client.query(query);
  });
}
