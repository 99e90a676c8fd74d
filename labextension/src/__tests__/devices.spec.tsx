import { nullTranslator } from '@jupyterlab/translation';
import {
  cleanup,
  fireEvent,
  render,
  screen,
  within
} from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it } from 'vitest';
import { Devices, type IDevicesProps, label } from '../devices';
import {
  allocator,
  brackets,
  device,
  GIB,
  HOSTILE,
  host,
  mig,
  NOW,
  run,
  shares
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(over: Partial<IDevicesProps> = {}): HTMLElement {
  const props: IDevicesProps = {
    devices: [device()],
    allocators: [],
    points: new Map(),
    runs: [],
    running: null,
    problem: null,
    alertAt: 90,
    minutes: 10,
    trans,
    ...over
  };
  return render(<Devices {...props} />).container;
}

/** The cards, not the lists within them. */
function cards(): HTMLElement[] {
  const list = screen.getByRole('list', { name: 'Devices' });
  return [...list.children] as HTMLElement[];
}

/** The places of the cards that are open. */
function opened(): number[] {
  return [...cards().keys()].filter(
    at => head(cards()[at]).getAttribute('aria-expanded') === 'true'
  );
}

function head(card: HTMLElement): HTMLElement {
  return within(card).getByRole('button');
}

function text(card: HTMLElement, selector: string): string[] {
  return [...card.querySelectorAll(selector)].map(
    found => found.textContent ?? ''
  );
}

describe('a card', () => {
  it('says what is used, by whom, and how busy the device is', () => {
    show({
      devices: [
        device({
          used: 20 * GIB,
          shares: shares({
            own: 8 * GIB,
            notebooks: 4 * GIB,
            others: 0,
            unattributed: 8 * GIB,
            free: 60 * GIB
          })
        })
      ]
    });
    const [card] = cards();
    expect(head(card).textContent).toContain('GPU 0');
    expect(head(card).textContent).toContain('NVIDIA A100');
    expect(head(card).textContent).toContain('20.0 / 80.0 GiB');
    expect(text(card, '.jp-gpumem-legend li')).toEqual([
      'this notebook8.0 GiB',
      'other notebooks4.0 GiB',
      'unattributed8.0 GiB',
      'free60.0 GiB'
    ]);
    expect(text(card, '.jp-gpumem-gauges span')).toEqual([
      'load 35 %',
      '41 °C',
      '72 W'
    ]);
  });

  it('draws each part as wide as its share, and says the parts to those who do not see them', () => {
    show({
      devices: [
        device({
          used: 30 * GIB,
          shares: shares({
            own: 20 * GIB,
            notebooks: 0,
            others: 10 * GIB,
            unattributed: null,
            free: 50 * GIB
          })
        })
      ]
    });
    const bar = screen.getByRole('img');
    expect(bar.getAttribute('aria-label')).toBe(
      'GPU 0, 30.0 / 80.0 GiB, this notebook 20.0 GiB, other processes 10.0 GiB'
    );
    const parts = [...bar.children] as HTMLElement[];
    expect(parts.map(part => part.style.width)).toEqual(['25%', '12.5%']);
    expect(parts.map(part => part.title)).toEqual([
      'this notebook: 20.0 GiB',
      'other processes: 10.0 GiB'
    ]);
  });

  it('says N/A for everything that is not known, and 0 for nothing of it', () => {
    const container = show({
      devices: [
        device({
          total: null,
          used: null,
          free: null,
          utilization: null,
          temperature: null,
          power: null,
          processes: null,
          shares: {
            own: null,
            notebooks: null,
            others: null,
            unattributed: null,
            free: null
          }
        })
      ],
      allocators: [allocator({ reserved: null, peak: null })]
    });
    const [card] = cards();
    expect(head(card).textContent).toContain('N/A / N/A');
    expect(text(card, '.jp-gpumem-legend .jp-gpumem-number')).toEqual(
      Array(5).fill('N/A')
    );
    expect(text(card, '.jp-gpumem-gauges')).toEqual([
      'load N/AN/AN/A',
      'torch allocated 1.0 GiBcached N/Apeak N/A'
    ]);
    expect(container.textContent).not.toMatch(/\b0 (B|%|W|°C)/);
    expect(within(card).getByRole('img').children).toHaveLength(0);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it.each([
    ['utilization', ['load N/A', '41 °C', '72 W']],
    ['temperature', ['load 35 %', 'N/A', '72 W']],
    ['power', ['load 35 %', '41 °C', 'N/A']]
  ])('says N/A for %s alone if only that is missing', (field, wanted) => {
    show({ devices: [device({ [field]: null })] });
    expect(text(cards()[0], '.jp-gpumem-gauges span')).toEqual(wanted);
  });

  it('shows the pool of its own device only, and what it caches', () => {
    show({
      allocators: [
        allocator(),
        allocator({ framework: 'other', device: 'cuda:1' })
      ]
    });
    expect(text(cards()[0], '.jp-gpumem-gauges').slice(1)).toEqual([
      'torch allocated 1.0 GiBcached 2.0 GiBpeak 2.5 GiB'
    ]);
  });

  it('shows no pool where the frameworks cannot see the device', () => {
    show({ devices: [device({ alias: null })], allocators: [allocator()] });
    expect(screen.queryByText(/allocated/)).toBeNull();
  });

  it('shows the notes of the device', () => {
    show({ devices: [device({ notes: ['No right to read this.'] })], trans });
    expect(screen.getByText('No right to read this.')).toBeTruthy();
  });
});

describe('the alert', () => {
  const full = (used: number) => [
    device({ used: used * GIB, total: 100 * GIB })
  ];

  it('comes at the threshold and not below it', () => {
    show({ devices: full(89), alertAt: 90 });
    expect(screen.queryByRole('alert')).toBeNull();
    cleanup();
    show({ devices: full(90), alertAt: 90 });
    expect(screen.getByRole('alert').textContent).toBe(
      '90 % of the memory is used'
    );
  });

  it('never comes if the threshold is 0', () => {
    show({ devices: full(100), alertAt: 0 });
    expect(screen.queryByRole('alert')).toBeNull();
  });
});

describe('several devices', () => {
  const eight = Array.from({ length: 8 }, (_, index) =>
    device({ uuid: `GPU-${index}`, index, notes: [`note ${index}`] })
  );

  it('are one line each if they are eight, and open one at a time', () => {
    show({ devices: eight });
    expect(cards()).toHaveLength(8);
    expect(opened()).toEqual([]);
    expect(screen.queryByText(/^note/)).toBeNull();

    fireEvent.click(head(cards()[3]));
    expect(opened()).toEqual([3]);
    expect(screen.getByText('note 3')).toBeTruthy();

    fireEvent.click(head(cards()[3]));
    expect(opened()).toEqual([]);
    expect(screen.queryByText('note 3')).toBeNull();
  });

  it('are open if they are two', () => {
    show({ devices: eight.slice(0, 2) });
    expect(opened()).toEqual([0, 1]);
  });

  it('leave the host out where there is a GPU', () => {
    show({ devices: [device(), host()] });
    expect(screen.queryByText('Host memory')).toBeNull();
  });

  it('are the host, with the reason, where there is no GPU', () => {
    show({ devices: [host()], problem: 'The NVIDIA driver is not loaded.' });
    expect(screen.getByRole('status').textContent).toBe(
      'The NVIDIA driver is not loaded.'
    );
    expect(head(cards()[0]).textContent).toBe('Host memory16.0 / 64.0 GiB');
    expect(screen.queryByTitle('Utilisation')).toBeNull();
  });

  it('are named by what they are part of', () => {
    const devices = [device({ index: 2 }), mig()];
    expect(devices.map(one => label(one, devices, trans))).toEqual([
      'GPU 2',
      'GPU 2 · MIG 1'
    ]);
    expect(label(mig(), [], trans)).toBe('GPU ? · MIG 1');
    expect(label(device({ index: null }), [], trans)).toBe('GPU ?');
  });
});

describe('texts', () => {
  it.each(HOSTILE)(
    'number %# of the hostile ones is text, not an element',
    name => {
      const container = show({
        devices: [device({ name, notes: [name] })],
        problem: name
      });
      expect(screen.getAllByText(name)).toHaveLength(3);
      expect(container.querySelector('img, script')).toBeNull();
    }
  );

  it('are all translated', () => {
    show({
      points: new Map([['GPU-a', [{ time: NOW, used: GIB, own: GIB }]]]),
      devices: [device({ used: 79 * GIB, notes: ['A note.'] })],
      allocators: [allocator()],
      problem: 'A problem.',
      running: run({ count: 4, begun: NOW - 30, ended: null }),
      trans: brackets
    });
    const list = screen.getByRole('list', { name: '⟦Devices⟧' });
    const all = `${list.textContent} ${screen.getAllByRole('status')[0].textContent}`;
    for (const said of [
      '⟦GPU 0⟧',
      '⟦this notebook⟧',
      '⟦free⟧',
      '⟦load 35 %⟧',
      '⟦torch allocated 1.0 GiB⟧',
      '⟦cached 2.0 GiB⟧',
      '⟦99 % of the memory is used⟧',
      '⟦cell [4] is running⟧',
      '⟦10 min ago⟧',
      '⟦now⟧',
      '⟦A note.⟧',
      '⟦A problem.⟧'
    ]) {
      expect(all).toContain(said);
    }
  });
});
