/** Sets the times of the transaction and of the statement that a session has in a simulation. */
export const SET_TIMES = `
  select set_config('simulation.transaction', $1, false), set_config('simulation.statement', $2, false)`;
