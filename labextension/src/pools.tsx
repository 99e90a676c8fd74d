/** How each allocator's figures have changed by what was done. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { NOT_AVAILABLE, signed } from './format';
import type { IAllocator } from './protocol';

export function Pools(props: {
  before: readonly IAllocator[];
  after: readonly IAllocator[];
  trans: TranslationBundle;
}): JSX.Element {
  const { trans } = props;
  return (
    <ul className="jp-gpumem-actions">
      {props.after.map(after => {
        const before = props.before.find(
          pool =>
            pool.device === after.device && pool.framework === after.framework
        );
        const grown = (value: (pool: IAllocator) => number | null) => {
          const [now, then] = [value(after), before ? value(before) : null];
          return now === null || then === null ? null : signed(now - then);
        };
        const reserved = grown(pool => pool.reserved);
        return (
          <li key={`${after.framework} ${after.device}`}>
            <span className="jp-gpumem-path">{after.device}</span>
            <span className="jp-gpumem-number">
              {trans.__(
                'allocated %1',
                grown(pool => pool.allocated) ?? NOT_AVAILABLE
              )}
            </span>
            {reserved !== null && (
              <span className="jp-gpumem-what">
                {trans.__('reserved from the driver %1', reserved)}
              </span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
