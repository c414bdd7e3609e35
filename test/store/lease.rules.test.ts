import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Lease, LeaseLost } from '../../src/store/leases.ts';

const SECOND = 1000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const granted = async () => true;
const refused = async () => false;
const unavailable = () => Promise.reject(new Error('Postgres does not answer'));

/** Creates a lease of ten seconds. */
const leaseOf = (renew: () => Promise<boolean>, others: { leaving?: AbortSignal } = {}) =>
  new Lease({ renew, milliseconds: 10 * SECOND, ...others });

describe('a lease', () => {
  test('aborts the work when it was not extended in time', async () => {
    const lease = leaseOf(granted);
    await vi.advanceTimersByTimeAsync(9 * SECOND);
    await lease.confirm();
    await vi.advanceTimersByTimeAsync(9 * SECOND);
    expect(lease.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(SECOND);
    expect(lease.signal.reason).toEqual(new LeaseLost('the lease was not extended for 10 s'));
    expect(lease.over.aborted).toBe(true);
  });

  test('lasts from the time at which a statement was sent, however late its reply is', async () => {
    const lease = leaseOf(granted);
    await vi.advanceTimersByTimeAsync(5 * SECOND);
    const extending = lease.extend(async () => {
      await new Promise((resolve) => setTimeout(resolve, 4 * SECOND));
      return 'reply';
    });
    await vi.advanceTimersByTimeAsync(4 * SECOND);
    expect(await extending).toBe('reply');
    await vi.advanceTimersByTimeAsync(5 * SECOND);
    expect(lease.over.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(SECOND);
    expect(lease.over.aborted).toBe(true);
  });

  test('aborts the work when a statement finds that it is lost', async () => {
    const lease = leaseOf(granted);
    await expect(lease.extend(async () => undefined)).rejects.toThrow(LeaseLost);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLost);
  });

  test('sends no statement after it was lost', async () => {
    const lease = leaseOf(granted);
    const reason = new Error('the connection is closed');
    lease.lose(reason);
    const write = vi.fn(granted);
    await expect(lease.extend(write)).rejects.toBe(reason);
    expect(write).not.toHaveBeenCalled();
  });

  test('aborts the work, but is not over, when the process stops', () => {
    const leaving = new AbortController();
    const lease = leaseOf(granted, { leaving: leaving.signal });
    leaving.abort();
    expect([lease.signal.aborted, lease.over.aborted]).toEqual([true, false]);
  });

  test('has the error of its holder when it was not extended in time', async () => {
    const expired = (milliseconds: number) => new Error(`no progress for ${milliseconds} ms`);
    const lease = new Lease({ renew: granted, milliseconds: SECOND, expired });
    await vi.advanceTimersByTimeAsync(SECOND);
    expect(lease.over.reason).toEqual(new Error('no progress for 1000 ms'));
  });

  test('without an end lasts until it is lost', async () => {
    const lease = new Lease({ renew: granted });
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(lease.over.aborted).toBe(false);
  });
});

describe('a lease that is kept', () => {
  const keep = (lease: Lease, others: { isStalled?(): boolean } = {}) => {
    const failed = vi.fn();
    lease.keep(3 * SECOND, { failed, ...others });
    return failed;
  };

  test('lasts until its holder ends it', async () => {
    const renew = vi.fn(granted);
    const lease = leaseOf(renew);
    const failed = keep(lease);
    await vi.advanceTimersByTimeAsync(60 * SECOND);
    expect([lease.over.aborted, renew.mock.calls.length]).toEqual([false, 20]);
    await lease.end();
    await vi.advanceTimersByTimeAsync(60 * SECOND);
    expect([lease.over.aborted, renew.mock.calls.length, vi.getTimerCount()]).toEqual([false, 20, 0]);
    expect(failed).not.toHaveBeenCalled();
  });

  test('aborts the work at the next renewal when another process has taken it', async () => {
    const lease = leaseOf(refused);
    const failed = keep(lease);
    await vi.advanceTimersByTimeAsync(3 * SECOND);
    expect(lease.over.reason).toEqual(new LeaseLost('the lease is gone'));
    expect(failed).not.toHaveBeenCalled();
  });

  test('reports failed renewals and lasts until its end', async () => {
    const lease = leaseOf(unavailable);
    const failed = keep(lease);
    await vi.advanceTimersByTimeAsync(9 * SECOND);
    expect([lease.over.aborted, failed.mock.calls.length]).toEqual([false, 3]);
    await vi.advanceTimersByTimeAsync(SECOND);
    expect(lease.over.aborted).toBe(true);
  });

  test('is not extended while the work is stalled', async () => {
    const lease = leaseOf(granted);
    let isStalled = false;
    keep(lease, { isStalled: () => isStalled });
    await vi.advanceTimersByTimeAsync(30 * SECOND);
    expect(lease.over.aborted).toBe(false);
    isStalled = true;
    await vi.advanceTimersByTimeAsync(10 * SECOND);
    expect(lease.over.aborted).toBe(true);
  });
});
