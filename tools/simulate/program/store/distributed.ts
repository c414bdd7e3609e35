export const isDistributed = async (): Promise<boolean> => false;
