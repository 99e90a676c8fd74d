/** What no name of the user keeps, by what holds it. Takes data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { bytes, shape } from './format';
import type { Subject } from './notebook';
import type { IHolding } from './protocol';

const MOST_IN_GROUP = 50;

/** The kernel's words for causes, in the order in which they are shown. */
function causes(trans: TranslationBundle): ReadonlyMap<string, string> {
  return new Map(
    Object.entries({
      'last error': trans.__('Last error'),
      output: trans.__('Outputs'),
      cycle: trans.__('Cycles'),
      'dead frame': trans.__('Frames that are over'),
      'hidden namespace': trans.__('Hidden namespaces'),
      cache: trans.__('Caches'),
      graph: trans.__('Graphs'),
      running: trans.__('Running code'),
      unknown: trans.__('Unknown'),
      module: trans.__('Modules'),
      registry: trans.__('Libraries')
    })
  );
}

export function Dangling(props: {
  others: readonly IHolding[];
  onWhy(title: string, of: Subject): void;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { others, onWhy, trans } = props;
  const named = causes(trans);
  const groups = new Map<string, IHolding[]>();
  for (const cause of named.keys()) {
    groups.set(cause, []);
  }
  for (const holding of others) {
    const { cause } = holding.holder;
    groups.set(cause, [...(groups.get(cause) ?? []), holding]);
  }
  const filled = [...groups].filter(([, holdings]) => holdings.length > 0);
  if (filled.length === 0) {
    return (
      <p className="jp-gpumem-note">
        {trans.__('Nothing dangles: every tensor has a name that keeps it.')}
      </p>
    );
  }
  return (
    <section aria-label={trans.__('Held by no name')}>
      <h3 className="jp-gpumem-heading">
        {trans.__('Held by no name')}
        <span className="jp-gpumem-number">{bytes(sum(others))}</span>
      </h3>
      {filled.map(([cause, holdings]) => (
        <details
          key={cause}
          className="jp-gpumem-cause"
          open={filled.length < 4}
        >
          <summary>
            <span>{named.get(cause) ?? cause}</span>
            <span className="jp-gpumem-number">{bytes(sum(holdings))}</span>
          </summary>
          <ul>
            {holdings.slice(0, MOST_IN_GROUP).map(holding => (
              <li
                key={`${holding.device} ${holding.storage}`}
                className="jp-gpumem-holding"
              >
                <span className="jp-gpumem-path" title={holding.holder.path}>
                  {holding.holder.path}
                </span>
                <span className="jp-gpumem-number">
                  {bytes(holding.nbytes)}
                </span>
                <span className="jp-gpumem-what">{tensorOf(holding)}</span>
                <span className="jp-gpumem-buttons">
                  <button
                    className="jp-gpumem-small"
                    aria-label={trans.__(
                      'Why is %1 there?',
                      holding.holder.path
                    )}
                    onClick={() =>
                      onWhy(holding.holder.path, {
                        device: holding.device,
                        storage: holding.storage
                      })
                    }
                  >
                    {trans.__('Why?')}
                  </button>
                </span>
              </li>
            ))}
          </ul>
          {holdings.length > MOST_IN_GROUP && (
            <p className="jp-gpumem-note">
              {trans.__('and %1 more', holdings.length - MOST_IN_GROUP)}
            </p>
          )}
        </details>
      ))}
    </section>
  );
}

function sum(holdings: readonly IHolding[]): number {
  return holdings.reduce((total, holding) => total + holding.nbytes, 0);
}

function tensorOf(holding: IHolding): string {
  const [tensor] = holding.tensors;
  return [
    ...(tensor ? [tensor.kind, shape(tensor.shape), tensor.dtype] : []),
    holding.device
  ].join(' · ');
}
