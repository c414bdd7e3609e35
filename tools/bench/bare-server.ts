/** Minimal HTTP server for comparison: it reads a body, parses it and responds. */
import { createServer } from 'node:http';

const answer = JSON.stringify({ message: 'success' });

createServer((request, response) => {
  if (request.method === 'GET') {
    response.end();
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    JSON.parse(Buffer.concat(chunks).toString());
    response.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': answer.length });
    response.end(answer);
  });
}).listen(Number(process.env.PORT), '127.0.0.1');
