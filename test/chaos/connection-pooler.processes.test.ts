import { sessionPooler, transactionPooler } from '../../tools/chaos/scenarios/37-connection-pooler.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

// test/store/pooling.test.ts covers the difference to the other pairs of mode and queue.
shortForms('redis', [transactionPooler, ...(isLong ? [sessionPooler] : [])]);
shortForms('postgres', [sessionPooler, ...(isLong ? [transactionPooler] : [])]);
