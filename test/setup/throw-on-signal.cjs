/** Preloaded by a process under test: SIGUSR2 ends the process with an uncaught error. */
process.on('SIGUSR2', () => {
  throw new Error('the scratch disk is full');
});
