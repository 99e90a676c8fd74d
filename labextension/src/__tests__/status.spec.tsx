import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { fireEvent, screen, waitFor } from '@testing-library/react';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { GpuMemModel } from '../model';
import type { ISample } from '../protocol';
import { busiest, StatusItem, summary } from '../status';
import {
  brackets,
  device,
  GIB,
  host,
  mig,
  MIB,
  sample,
  shares
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');

describe('the busiest device', () => {
  const at = (uuid: string, used: number | null, total: number | null) =>
    device({ uuid, used, total });

  it('is the one of which the largest share is used', () => {
    const found = busiest([
      at('a', 20 * GIB, 80 * GIB),
      at('b', 10 * GIB, 16 * GIB),
      at('c', null, 80 * GIB)
    ]);
    expect(found?.uuid).toBe('b');
  });

  it('is never the host where a GPU is', () => {
    const memory = host({ used: 64 * GIB });
    expect(busiest([at('a', 0, 80 * GIB), memory])?.uuid).toBe('a');
    expect(busiest([memory])?.uuid).toBe('cpu');
  });

  it('is none where nothing is known', () => {
    expect(busiest([])).toBeNull();
    expect(busiest([at('a', null, 80 * GIB), host()])).toBeNull();
  });

  it('has no device beside it of which a larger share is used', () => {
    const figures = fc.array(
      fc.tuple(
        fc.integer({ min: 0, max: 100 }),
        fc.integer({ min: 1, max: 100 })
      )
    );
    fc.assert(
      fc.property(figures, list => {
        const devices = list.map(([used, total], index) =>
          at(`${index}`, Math.min(used, total), total)
        );
        const found = busiest(devices);
        expect(found === null).toBe(list.length === 0);
        for (const { used, total } of devices) {
          expect((used ?? 0) / (total ?? 1)).toBeLessThanOrEqual(
            (found?.used ?? 0) / (found?.total ?? 1)
          );
        }
      })
    );
  });
});

describe('the text', () => {
  it('names the busiest GPU with what is used of it', () => {
    const devices = [
      device(),
      device({ uuid: 'GPU-b', index: 1, used: 40 * GIB })
    ];
    expect(summary(sample({ devices }), 'busiest', trans)).toBe(
      'GPU 1: 40.0 / 80.0 GiB'
    );
  });

  it('names an instance of a GPU', () => {
    const devices = [device(), mig({ used: 5 * GIB, total: 10 * GIB })];
    expect(summary(sample({ devices }), 'busiest', trans)).toBe(
      'GPU 0 · MIG 1: 5.0 / 10.0 GiB'
    );
  });

  it('is about the host where there is no GPU', () => {
    const devices = [host({ shares: shares({ own: 300 * MIB }) })];
    expect(summary(sample({ devices }), 'busiest', trans)).toBe(
      'Host memory: 16.0 / 64.0 GiB'
    );
    expect(summary(sample({ devices }), 'notebook', trans)).toBe(
      'This notebook: 300.0 MiB'
    );
  });

  it('says what this notebook uses on all GPUs, and not on the host', () => {
    const devices = [
      device({ shares: shares({ own: GIB }) }),
      device({ uuid: 'GPU-b', index: 1, shares: shares({ own: 2 * GIB }) }),
      host({ shares: shares({ own: 9 * GIB }) })
    ];
    expect(summary(sample({ devices }), 'notebook', trans)).toBe(
      'This notebook: 3.0 GiB'
    );
  });

  it('counts a GPU and its instance once, and what nobody tells as N/A', () => {
    const split = [device(), mig({ shares: shares({ own: 2 * GIB }) })];
    expect(summary(sample({ devices: split }), 'notebook', trans)).toBe(
      'This notebook: 2.0 GiB'
    );
    const silent = [device({ shares: shares({ own: null }) })];
    expect(summary(sample({ devices: silent }), 'notebook', trans)).toBe(
      'This notebook: N/A'
    );
  });

  it('says N/A for a total that is not known', () => {
    expect(
      summary(sample({ devices: [device({ total: null })] }), 'busiest', trans)
    ).toBe('GPU 0: 2.0 GiB / N/A');
  });

  it('is none if it is switched off, and before there is a sample', () => {
    expect(summary(sample(), 'off', trans)).toBeNull();
    expect(summary(null, 'busiest', trans)).toBeNull();
    expect(summary(null, 'notebook', trans)).toBeNull();
    expect(
      summary(sample({ devices: [device({ used: null })] }), 'busiest', trans)
    ).toBeNull();
  });

  it('is translated', () => {
    expect(summary(sample(), 'busiest', brackets)).toMatch(/^⟦GPU 0⟧: /);
    expect(summary(sample(), 'notebook', brackets)).toBe(
      '⟦This notebook: 2.0 GiB⟧'
    );
  });
});

describe('the item', () => {
  class Source {
    sample: ISample | null = null;
    readonly sampled = new Signal<this, ISample>(this);
    readonly changed = new Signal<this, void>(this);

    take(taken: ISample): void {
      this.sample = taken;
      this.sampled.emit(taken);
    }
  }

  let source: Source;
  let item: StatusItem;
  const onOpen = vi.fn();

  beforeEach(() => {
    source = new Source();
    item = new StatusItem(source as unknown as GpuMemModel, onOpen, trans);
    Widget.attach(item, document.body);
  });

  afterEach(() => {
    item.dispose();
    onOpen.mockReset();
  });

  it('opens the panel when it is clicked', async () => {
    source.take(sample());
    const button = await screen.findByRole('button');
    expect(button.textContent).toBe('GPU 0: 2.0 / 80.0 GiB');
    expect(button.title).toBe('GPU memory: open the panel');
    expect(onOpen).not.toHaveBeenCalled();
    fireEvent.click(button);
    expect(onOpen).toHaveBeenCalledTimes(1);
  });

  it('follows the samples, and goes when the kernel goes', async () => {
    source.take(sample());
    await screen.findByText('GPU 0: 2.0 / 80.0 GiB');
    source.take(sample({ devices: [device({ used: 3 * GIB })] }));
    await screen.findByText('GPU 0: 3.0 / 80.0 GiB');
    source.sample = null;
    source.changed.emit();
    await waitFor(() => expect(screen.queryByRole('button')).toBeNull());
  });

  it('shows what is chosen, and nothing if that is chosen', async () => {
    source.take(sample());
    item.what = 'notebook';
    await screen.findByText('This notebook: 2.0 GiB');
    item.what = 'off';
    expect(item.what).toBe('off');
    await waitFor(() => expect(screen.queryByRole('button')).toBeNull());
  });

  it('listens no more when it is gone', () => {
    const update = vi.spyOn(item, 'update');
    source.take(sample());
    expect(update).toHaveBeenCalledTimes(1);
    item.dispose();
    source.take(sample({ devices: [host()] }));
    expect(update).toHaveBeenCalledTimes(1);
  });
});
