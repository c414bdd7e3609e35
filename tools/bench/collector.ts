/** A collector of traces that reads what it is sent and forgets it: what is measured is the sender. */
import { createServer } from 'node:http';

createServer((request, response) => {
  request.on('end', () => response.end());
  request.resume();
}).listen(Number(process.env.PORT), '127.0.0.1');
