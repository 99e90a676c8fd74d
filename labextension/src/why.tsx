/** The answer to *why?*: who holds it, and what has to go. Takes data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { failure } from './cleanup';
import { told } from './format';
import { Notecard } from './notecard';
import type { IWhy } from './notebook';

export function WhyCard(props: {
  why: IWhy;
  isBusy: boolean;
  onCloseWhy(): void;
  trans: TranslationBundle;
}): JSX.Element {
  const { why, isBusy, trans } = props;
  return (
    <Notecard
      title={trans.__('Why is %1 there?', why.title)}
      focus={`${why.holders !== null}`}
    >
      {why.holders === null && why.failed === null && (
        <p role="status">
          {isBusy
            ? trans.__('Waiting for the running cell…')
            : trans.__('Searching…')}
        </p>
      )}
      {why.failed && (
        <p role="alert">{failure(why.failed.code, why.failed.text, trans)}</p>
      )}
      {why.holders && (
        <ol className="jp-gpumem-paths">
          {why.holders.map((holder, index) => (
            <li key={index}>
              <span className="jp-gpumem-path">{holder.path}</span>
              {holder.frees !== null && (
                <span className="jp-gpumem-what">
                  {holder.frees
                    ? trans.__('letting go of this one alone frees it')
                    : trans.__('not enough alone')}
                </span>
              )}
            </li>
          ))}
        </ol>
      )}
      {why.cuts.length > 0 && (
        <p>
          {trans.__('To free it, let go of all of: %1', why.cuts.join(', '))}
        </p>
      )}
      {why.notes.map(note => (
        <p key={note}>{told(note, trans)}</p>
      ))}
      <div className="jp-gpumem-toolbar">
        <button className="jp-gpumem-button" onClick={props.onCloseWhy}>
          {trans.__('Close')}
        </button>
      </div>
    </Notecard>
  );
}
