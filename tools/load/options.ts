import { Command, InvalidArgumentError, Option } from 'commander';

/** The arguments of the command line. */
export interface LoadArguments {
  url: string;
  key: string;
  seconds: number;
  connections: number;
  objects: number;
  users: number;
  /** Percent. */
  bad: number;
  rate: number;
  databaseUrl?: string;
  /** The METRICS_TOKEN of the service. */
  metricsToken?: string;
  allowRemote: boolean;
}

/** Maximum objects of one request: the limit of the specification for each of the three kinds. */
const MAX_OBJECTS = 225;

/**
 * Parses `arguments_`, which has the form of `process.argv`. Exits with a message if an argument is invalid.
 */
export function readArguments(arguments_: string[]): LoadArguments {
  const command = new Command('npm run load --')
    .description('Send real-shaped traffic to a running Penstock and report how it went.')
    .option('--url <url>', 'address of the web process', 'http://127.0.0.1:3000')
    .addOption(new Option('--key <key>', 'API key').env('PENSTOCK_API_KEY').makeOptionMandatory())
    .option('--seconds <number>', 'how long to send', between(0.1, 86_400), 10)
    .option('--connections <number>', 'requests on their way at once', whole(1, 2000), 32)
    .option('--objects <number>', 'objects per request, the three kinds in turn', whole(1, MAX_OBJECTS), 75)
    .option('--users <number>', 'users that the traffic is about', whole(1, 99_999_999), 100_000)
    .option('--bad <per cent>', 'share of objects that are wrong on purpose', between(0, 100), 1)
    .option('--rate <number>', 'requests per second; 0: as fast as it goes', between(0, 1_000_000), 0)
    .option('--database-url <url>', "the service's Postgres, to count and to look there instead of over HTTP")
    .addOption(
      new Option('--metrics-token <token>', 'the METRICS_TOKEN of the service, to read /metrics').env(
        'METRICS_TOKEN',
      ),
    )
    .option('--allow-remote', 'send load to another machine too', false)
    .addHelpText(
      'after',
      '\nThe probe users (external ids probe-…) are deleted at the end, if the key has the permission users.delete.' +
        '\nThe users of the traffic (external ids and aliases load-00000000 and so on) stay: use a workspace of its own,' +
        '\nor delete them with POST /users/delete.',
    )
    .addHelpText('after', '\nExample:\n  $ npm run load -- --key "$PENSTOCK_API_KEY" --seconds 30');
  return command.parse(arguments_).opts<LoadArguments>();
}

function between(min: number, max: number) {
  return (text: string): number => {
    const value = Number(text);
    if (text.trim() === '' || !(value >= min && value <= max)) {
      throw new InvalidArgumentError(`It is a number from ${min} to ${max}.`);
    }
    return value;
  };
}

function whole(min: number, max: number) {
  const parse = between(min, max);
  return (text: string): number => {
    const value = parse(text);
    if (!Number.isInteger(value)) throw new InvalidArgumentError('It is a whole number.');
    return value;
  };
}
