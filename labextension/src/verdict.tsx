/** Why a cell has failed for want of memory, or of a device. Takes data and callbacks; it leaves the focus alone. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { bytes, told } from './format';
import type { IVerdict } from './protocol';

export function VerdictCard(props: {
  verdict: IVerdict;
  /** A plan is on screen, or a clean-up under way. */
  hasTask: boolean;
  onFree(): void;
  onDismiss(): void;
  trans: TranslationBundle;
}): JSX.Element {
  const { verdict, hasTask, onFree, onDismiss, trans } = props;
  const title =
    verdict.kind === 'fault'
      ? trans.__('A fault of the device')
      : trans.__('Out of memory');
  return (
    <section
      className="jp-gpumem-notecard jp-gpumem-verdict"
      role="alert"
      aria-label={title}
    >
      <h3 className="jp-gpumem-heading">{title}</h3>
      <p>{told(verdict.asked, trans)}</p>
      {verdict.cause && (
        <p>
          <b>{trans.__('Cause:')}</b> {told(verdict.cause, trans)}
        </p>
      )}
      <p>
        <b>{trans.__('Cure:')}</b> {told(verdict.cure, trans)}
        {verdict.code && (
          <>
            {' '}
            <code>{verdict.code}</code>
          </>
        )}
      </p>
      {verdict.given_back > 0 && (
        <p>
          {trans.__(
            '%1 that only the error held is back.',
            bytes(verdict.given_back)
          )}
        </p>
      )}
      <div className="jp-gpumem-toolbar">
        {verdict.dangling && (
          <button
            className="jp-gpumem-button jp-mod-primary"
            disabled={hasTask}
            title={trans.__('Plan what frees everything that no name keeps')}
            onClick={onFree}
          >
            {trans.__('Free dangling')}
          </button>
        )}
        <button className="jp-gpumem-button" onClick={onDismiss}>
          {trans.__('Dismiss')}
        </button>
      </div>
    </section>
  );
}
