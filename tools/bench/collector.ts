/** A trace collector that discards its input, because only the sender is measured. */
import { createServer } from 'node:http';

createServer((request, response) => {
  request.on('end', () => response.end());
  request.resume();
}).listen(Number(process.env.PORT), '127.0.0.1');
