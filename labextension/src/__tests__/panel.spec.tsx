import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import {
  act,
  fireEvent,
  screen,
  waitFor,
  within
} from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { History } from '../history';
import type { GpuMemModel } from '../model';
import { GpuMemPanel } from '../panel';
import { type State, sentence } from '../states';
import { states } from './states';
import type { ISample } from '../protocol';
import {
  device,
  GIB,
  HOSTILE,
  KERNEL,
  namesView,
  sample,
  session,
  verdict
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');

/** What the panel reads of a model; a spec says what is there. */
class Source {
  state: State = { type: 'ready' };
  sample: ISample | null = null;
  history = new History();
  notebook: object | null = null;
  overdue: number | null = null;
  fault: string | null = null;
  remoteHost: string | null = null;
  isBusy = false;
  isActive = false;
  load = vi.fn(() => Promise.resolve());
  readonly changed = new Signal<this, void>(this);
  readonly sampled = new Signal<this, ISample>(this);

  put(over: Partial<Source>): void {
    Object.assign(this, over);
    act(() => this.changed.emit());
  }

  take(taken: ISample): void {
    this.sample = taken;
    act(() => this.sampled.emit(taken));
  }
}

let source: Source;
let panel: GpuMemPanel;
const deeds = {
  sessions: vi.fn(() => new Map([[KERNEL, [session()]]])),
  open: vi.fn(),
  restart: vi.fn(() => Promise.resolve()),
  shutDown: vi.fn(() => Promise.resolve())
};

/** The panel in the page, its parts drawn. */
async function show(): Promise<void> {
  Widget.attach(panel, document.body);
  await waitFor(() => expect(header()).toBeTruthy());
}

const header = () => panel.node.querySelector<HTMLElement>('[data-state]');

beforeEach(() => {
  vi.clearAllMocks();
  source = new Source();
  panel = new GpuMemPanel(source as unknown as GpuMemModel, deeds, trans);
});

afterEach(() => {
  panel.dispose();
});

describe('the state', () => {
  it('is said in the panel, with a button only where it helps', async () => {
    await show();
    for (const state of states) {
      source.put({ state });
      const place = within(header() as HTMLElement);
      expect(place.getByRole('status').textContent).toBe(
        sentence(state, trans)
      );
      const loads = place.queryAllByRole('button').map(one => one.textContent);
      expect(loads, state.type).toEqual(
        state.type === 'notLoaded'
          ? ['Load the extension']
          : state.type === 'notInstalled'
            ? ['Try again']
            : []
      );
    }
    source.put({ state: { type: 'ready' } });
    expect(header()?.textContent).toBe('');
  });

  it.each([
    ['notLoaded', { type: 'notLoaded' }],
    ['notInstalled', { type: 'notInstalled', text: 'No module' }]
  ] as const)('%s has a button that loads', async (_name, state) => {
    source.state = state;
    await show();
    expect(source.load).not.toHaveBeenCalled();
    fireEvent.click(within(panel.node).getByRole('button'));
    expect(source.load).toHaveBeenCalledTimes(1);
  });

  it.each(HOSTILE)(
    'shows number %# of the hostile reasons as text',
    async text => {
      source.state = { type: 'notInstalled', text };
      source.fault = text;
      source.remoteHost = text;
      await show();
      expect(screen.getByText(text)).toBeTruthy();
      expect(header()?.textContent?.split(text)).toHaveLength(4);
      expect(header()?.querySelector('img, script')).toBeNull();
    }
  );

  it('says that figures are old, and whose fault that is', async () => {
    source.overdue = 8;
    await show();
    expect(header()?.textContent).toBe(
      'These figures are 8 s old: the kernel is not answering.'
    );
    source.put({ isBusy: true, overdue: 180 });
    expect(header()?.textContent).toMatch(
      /^These figures are 3 min old: the running cell/
    );
    source.put({ overdue: null });
    expect(header()?.textContent).toBe('');
    source.put({ overdue: 8, state: { type: 'dead' } });
    expect(header()?.textContent).not.toContain('old');
  });

  it('says whose machine the figures are of, and what failed', async () => {
    source.remoteHost = 'node7';
    source.fault = 'OSError: no more files';
    await show();
    expect(
      within(panel.node).getByText(/another machine, node7:/)
    ).toBeTruthy();
    expect(within(panel.node).getByRole('alert').textContent).toBe(
      'Taking figures failed: OSError: no more files'
    );
  });
});

describe('the panel', () => {
  it('has a name for those who do not see it', async () => {
    await show();
    expect(screen.getByRole('region', { name: 'GPU memory' })).toBe(panel.node);
    expect(panel.title.caption).toBe('GPU memory');
    expect(panel.id).toBe('jupyter-gpumem-panel');
  });

  it('asks for figures only while it can be seen', () => {
    expect(source.isActive).toBe(false);
    Widget.attach(panel, document.body);
    expect(source.isActive).toBe(true);
    panel.hide();
    expect(source.isActive).toBe(false);
    panel.show();
    expect(source.isActive).toBe(true);
    Widget.detach(panel);
    expect(source.isActive).toBe(false);
    panel.hide();
    Widget.attach(panel, document.body);
    expect(source.isActive).toBe(false);
    panel.show();
    expect(source.isActive).toBe(true);
    panel.dispose();
    expect(source.isActive).toBe(false);
  });

  it('shows no figures before there are some, and follows them', async () => {
    await show();
    expect(within(panel.node).queryByText('GPU 0')).toBeNull();
    source.take(sample());
    expect(within(panel.node).getByText('2.0 / 80.0 GiB')).toBeTruthy();
    source.take(sample({ devices: [device({ used: 3 * GIB })] }));
    expect(within(panel.node).getByText('3.0 / 80.0 GiB')).toBeTruthy();
    source.put({ sample: null });
    expect(within(panel.node).queryByText('GPU 0')).toBeNull();
  });

  it('does what is set', async () => {
    source.sample = sample({ devices: [device({ used: 40 * GIB })] });
    await show();
    await screen.findByText('40.0 / 80.0 GiB');
    expect(screen.queryByRole('alert')).toBeNull();
    act(() => {
      panel.settings = { alertAt: 50, minutes: 5 };
    });
    expect(panel.settings).toEqual({ alertAt: 50, minutes: 5 });
    expect(screen.getByRole('alert').textContent).toBe(
      '50 % of the memory is used'
    );
  });

  it('shows the notebook’s names only of a kernel that answers', async () => {
    source.notebook = {
      names: namesView(),
      isAsking: false,
      failed: null,
      task: null,
      why: null,
      account: null,
      verdict: null
    };
    await show();
    await screen.findByRole('region', { name: 'Names' });
    source.put({ state: { type: 'restarting' } });
    expect(screen.queryByRole('region', { name: 'Names' })).toBeNull();
    source.put({ state: { type: 'ready' }, notebook: null });
    expect(screen.queryByRole('region', { name: 'Names' })).toBeNull();
  });

  it('hands what is pressed among the names to the notebook', async () => {
    const notebook = {
      names: namesView(),
      isAsking: false,
      failed: null,
      task: null,
      why: { title: 'model', holders: [], notes: [], cuts: [], failed: null },
      account: null,
      verdict: null,
      refresh: vi.fn(),
      plan: vi.fn(),
      planMove: vi.fn(),
      askAccount: vi.fn(),
      askWhy: vi.fn(),
      closeWhy: vi.fn()
    };
    source.notebook = notebook;
    await show();
    const press = async (name: string) =>
      fireEvent.click(await screen.findByRole('button', { name }));
    await press('Refresh');
    expect(notebook.refresh).toHaveBeenCalledTimes(1);
    await press('Delete model');
    expect(notebook.plan).toHaveBeenCalledExactlyOnceWith({
      names: ['model'],
      dangling: false,
      empty: false
    });
    await press('Move model to host memory');
    expect(notebook.planMove).toHaveBeenCalledExactlyOnceWith('park', [
      'model'
    ]);
    await press('Account');
    expect(notebook.askAccount).toHaveBeenCalledTimes(1);
    await press('Why is model there?');
    expect(notebook.askWhy).toHaveBeenCalledExactlyOnceWith('model', {
      name: 'model'
    });
    await press('Close');
    expect(notebook.closeWhy).toHaveBeenCalledTimes(1);
  });

  it('shows the last verdict, frees what dangles and puts it away', async () => {
    const notebook = {
      verdict: verdict(),
      names: null,
      isAsking: false,
      failed: null,
      task: null,
      why: null,
      account: null,
      plan: vi.fn(),
      dismissVerdict: vi.fn()
    };
    source.notebook = notebook;
    await show();
    const card = within(
      await screen.findByRole('alert', { name: 'Out of memory' })
    );
    fireEvent.click(card.getByRole('button', { name: 'Free dangling' }));
    expect(notebook.plan).toHaveBeenCalledExactlyOnceWith({
      names: [],
      dangling: true,
      empty: false
    });
    fireEvent.click(card.getByRole('button', { name: 'Dismiss' }));
    expect(notebook.dismissVerdict).toHaveBeenCalledTimes(1);
    notebook.verdict = null as never;
    source.put({});
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('knows a notebook by its new name once it has one', async () => {
    source.sample = sample();
    await show();
    await screen.findByRole('button', { name: 'train.ipynb' });
    deeds.sessions.mockReturnValueOnce(
      new Map([[KERNEL, [session({ name: 'new.ipynb' })]]])
    );
    act(() => panel.refresh());
    expect(screen.getByRole('button', { name: 'new.ipynb' })).toBeTruthy();
  });
});

describe('a deed that loses the variables', () => {
  beforeEach(async () => {
    source.sample = sample();
    await show();
  });

  const press = async (name: string) =>
    fireEvent.click(await screen.findByRole('button', { name }));
  // the style sheets that show the dialog are not here
  const hidden = true;
  const asked = () => screen.queryByRole('dialog', { hidden });
  const answer = async (question: string, name: string) => {
    const dialog = await screen.findByRole('dialog', { hidden });
    await within(dialog).findByText(question);
    await within(dialog).findByText(/^All of its variables will be lost/);
    const button = { name, hidden };
    fireEvent.click(await within(dialog).findByRole('button', button));
    await waitFor(() => expect(asked()).toBeNull());
  };

  it('is a restart, done once it is confirmed', async () => {
    await press('Restart the kernel of train.ipynb');
    expect(deeds.restart).not.toHaveBeenCalled();
    await answer('Restart the kernel of train.ipynb?', 'Restart');
    expect(deeds.restart).toHaveBeenCalledExactlyOnceWith(session());
    expect(deeds.shutDown).not.toHaveBeenCalled();
  });

  it('is a shutdown, done once it is confirmed', async () => {
    await press('Shut down the kernel of train.ipynb');
    expect(deeds.shutDown).not.toHaveBeenCalled();
    await answer('Shut down the kernel of train.ipynb?', 'Shut down');
    expect(deeds.shutDown).toHaveBeenCalledExactlyOnceWith(session());
    expect(deeds.restart).not.toHaveBeenCalled();
  });

  it.each([
    'Restart the kernel of train.ipynb',
    'Shut down the kernel of train.ipynb'
  ])('is not done if it is cancelled: %s', async name => {
    await press(name);
    await answer(`${name}?`, 'Cancel');
    expect(deeds.restart).not.toHaveBeenCalled();
    expect(deeds.shutDown).not.toHaveBeenCalled();
  });

  it('is not asked about if somebody only goes there', async () => {
    await press('train.ipynb');
    expect(deeds.open).toHaveBeenCalledExactlyOnceWith(session());
    expect(asked()).toBeNull();
  });
});
