import type { InitializeHook, ResolveHook } from 'node:module';

let from: string;
let to: string;

export const initialize: InitializeHook<{ from: string; to: string }> = (given) => {
  ({ from, to } = given);
};

export const resolve: ResolveHook = async (specifier, context, next) => {
  const result = await next(specifier, context);
  return result.url === from && context.parentURL !== to ? { ...result, url: to } : result;
};
