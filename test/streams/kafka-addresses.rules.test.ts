import { expect, test } from 'vitest';
import { createReach } from '../../src/platform/reach.ts';
import { openKafka } from '../../src/streams/kafka.ts';

/** Returns the error for a broker whose name resolves to these addresses, before any connection is made. */
async function refusalOf(...addresses: string[]): Promise<string> {
  const reach = createReach({ refused: 'private' }, (_host, _options, answer) =>
    answer(
      null,
      addresses.map((address) => ({ address, family: 4 })),
    ),
  );
  const brokers = ['kafka.example:9'];
  const destination = openKafka({ brokers, topic: 't', tls: false, reach, milliseconds: 2000 });
  const delivered = destination.deliver(
    { id: 'b', messages: [], envelopes: [] },
    new AbortController().signal,
  );
  const error = await delivered.catch(String);
  await destination.close();
  return String(error);
}

test('a broker is rejected if any address of its name is, because the client tries them all', async () => {
  for (const addresses of [['10.0.0.1'], ['93.184.215.14', '10.0.0.1'], ['127.0.0.1', '93.184.215.14']])
    expect(await refusalOf(...addresses)).toMatch(/kafka\.example, which is 1.* REFUSED_NETWORKS refuses/);
  // The name does not resolve, so the client finds no address to connect to.
  expect(await refusalOf('93.184.215.14')).not.toContain('REFUSED_NETWORKS');
});
