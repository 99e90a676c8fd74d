/** The status bar item: used and total of the busiest GPU, or what this notebook uses. */
import { VDomRenderer } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { gpusOf, label, wholes } from './devices';
import { bytes, share, usedOf } from './format';
import type { GpuMemModel } from './model';
import type { IDevice, ISample } from './protocol';

export type StatusBar = 'busiest' | 'notebook' | 'off';

/** The GPU of which the largest share is used, or the host where there is none. */
export function busiest(devices: readonly IDevice[]): IDevice | null {
  const gpus = gpusOf(devices);
  const known = (gpus.length > 0 ? gpus : devices).filter(
    device => device.used !== null
  );
  const full = (device: IDevice) => share(device.used, device.total) ?? 0;
  return known.reduce<IDevice | null>(
    (best, device) =>
      best === null || full(device) > full(best) ? device : best,
    null
  );
}

/** The item's text; null to show none. */
export function summary(
  sample: ISample | null,
  what: StatusBar,
  trans: TranslationBundle
): string | null {
  const device = sample && busiest(sample.devices);
  if (what === 'off' || !sample || !device) {
    return null;
  }
  const name = label(device, sample.devices, trans);
  if (what === 'busiest') {
    return `${name}: ${usedOf(device.used, device.total)}`;
  }
  const known = wholes(sample.devices).flatMap(one => one.shares.own ?? []);
  const own = known.length > 0 ? known.reduce((sum, one) => sum + one) : null;
  return trans.__('This notebook: %1', bytes(own));
}

/** A `VDomRenderer` needs a model that says when it has changed; ours is not made for it. */
export class StatusItem extends VDomRenderer {
  constructor(
    private readonly gpumem: GpuMemModel,
    private readonly onOpen: () => void,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-gpumem-status');
    gpumem.sampled.connect(this._onChange, this);
    gpumem.changed.connect(this._onChange, this);
  }

  get what(): StatusBar {
    return this._what;
  }

  set what(value: StatusBar) {
    this._what = value;
    this._onChange();
  }

  override dispose(): void {
    this.gpumem.sampled.disconnect(this._onChange, this);
    this.gpumem.changed.disconnect(this._onChange, this);
    super.dispose();
  }

  protected override render(): JSX.Element | null {
    if (this._text === null) {
      return null;
    }
    return (
      <button
        className="jp-gpumem-statusButton"
        title={this.trans.__('GPU memory: open the panel')}
        onClick={this.onOpen}
      >
        {this._text}
      </button>
    );
  }

  private _onChange(): void {
    const text = summary(this.gpumem.sample, this._what, this.trans);
    if (text !== this._text) {
      this._text = text;
      this.update();
    }
  }

  private _what: StatusBar = 'busiest';
  private _text: string | null = null;
}
