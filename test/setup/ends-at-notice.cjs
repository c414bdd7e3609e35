// Ends the process as soon as Postgres sends it the notice `ends the process`, as a fault in native code would.
const { Socket } = require('node:net');

const { emit } = Socket.prototype;
Socket.prototype.emit = function (name, ...given) {
  if (name === 'data' && given[0].includes('ends the process')) process.kill(process.pid, 'SIGKILL');
  return emit.call(this, name, ...given);
};
