export async function countLanes(): Promise<void> {}
export async function countUsage(): Promise<void> {}
