export const isDistributed = async (): Promise<boolean> => false;
export const liesApart = (): boolean => false;
export const readPlaces = (): undefined => undefined;
