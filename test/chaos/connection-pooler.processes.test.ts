import { sessionPooler, transactionPooler } from '../../tools/chaos/scenarios/37-connection-pooler.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

// The other pairs of mode and queue differ from these in what test/store/pooling.test.ts shows.
shortForms('redis', [transactionPooler, ...(isLong ? [sessionPooler] : [])]);
shortForms('postgres', [sessionPooler, ...(isLong ? [transactionPooler] : [])]);
