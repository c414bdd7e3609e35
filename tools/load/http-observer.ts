import type { Observer } from './observer.ts';

/**
 * Creates an observer with the view of a client: the counters of the installation in /metrics, and the
 * profiles that /users/export/ids returns.
 */
export function observeHttp(url: string, key: string, metricsToken?: string): Observer {
  const headers = metricsToken ? { Authorization: `Bearer ${metricsToken}` } : {};
  return {
    source: 'the counters in /metrics',
    // /users/export/ids has a limit of 2,500 requests per minute, and one probe may send about ten requests.
    probeEvery: 1000,
    readEvery: 100,
    async applied() {
      const response = await fetch(new URL('/metrics', url), { headers });
      const text = await response.text();
      if (response.status === 401)
        throw new Error(
          '/metrics answered 401: set --metrics-token (or METRICS_TOKEN) to the METRICS_TOKEN of the service',
        );
      const read = (name: string) => {
        const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1];
        if (value === undefined) throw new Error(`/metrics answered ${response.status} without ${name}`);
        return Number(value);
      };
      return read('penstock_installation_objects_applied') + read('penstock_installation_dead_letters');
    },
    async isReadable(externalId) {
      const response = await fetch(new URL('/users/export/ids', url), {
        method: 'POST',
        headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ external_ids: [externalId], fields_to_export: ['external_id'] }),
      });
      const answer = (await response.json()) as { users?: unknown[] };
      if (response.status >= 300 || !answer.users) {
        throw new Error(`POST /users/export/ids answered ${response.status}`);
      }
      return answer.users.length > 0;
    },
    stop: async () => {},
  };
}
