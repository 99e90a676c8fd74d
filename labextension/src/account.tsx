/** Where the bytes of each device are: three sums, each as a bar and a table. Takes data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { failure } from './cleanup';
import { NOT_AVAILABLE, bytes, share, told } from './format';
import { Notecard } from './notecard';
import type { IAccountView } from './notebook';
import type { IAccount, IEntry, ISum } from './protocol';

export function AccountCard(props: {
  account: IAccountView;
  isBusy: boolean;
  onCloseAccount(): void;
  trans: TranslationBundle;
}): JSX.Element {
  const { account, isBusy, trans } = props;
  const { accounts, failed } = account;
  return (
    <Notecard title={trans.__('Account')} focus={`${accounts !== null}`}>
      {accounts === null && failed === null && (
        <p role="status">
          {isBusy
            ? trans.__('Waiting for the running cell…')
            : trans.__('Counting…')}
        </p>
      )}
      {failed && <p role="alert">{failure(failed.code, failed.text, trans)}</p>}
      {accounts?.length === 0 && (
        <p>{trans.__('No framework that is loaded has memory there.')}</p>
      )}
      {accounts?.map(one => (
        <Sums
          key={`${one.framework} ${one.device}`}
          account={one}
          trans={trans}
        />
      ))}
      <div className="jp-gpumem-toolbar">
        <button className="jp-gpumem-button" onClick={props.onCloseAccount}>
          {trans.__('Close')}
        </button>
      </div>
    </Notecard>
  );
}

function Sums(props: {
  account: IAccount;
  trans: TranslationBundle;
}): JSX.Element {
  const { account, trans } = props;
  const isHost = account.reserved.entries.some(one => one.kind === 'tensors');
  const name = `${account.framework} ${account.device}`;
  return (
    <section aria-label={name}>
      <Total
        title={trans.__('%1: allocated', name)}
        sum={account.allocated}
        trans={trans}
      />
      <Total
        title={
          isHost
            ? trans.__('Resident memory of this process')
            : trans.__('%1: reserved', name)
        }
        sum={account.reserved}
        trans={trans}
      />
      <Total
        title={trans.__('%1: used by all processes', account.device)}
        sum={account.used}
        trans={trans}
      />
      {account.notes.map(note => (
        <p key={note} className="jp-gpumem-note">
          {told(note, trans)}
        </p>
      ))}
    </section>
  );
}

/** Parts of nothing are left out, but *unexplained* is always answered. */
function Total(props: {
  title: string;
  sum: ISum;
  trans: TranslationBundle;
}): JSX.Element {
  const { title, sum, trans } = props;
  const named = parts(trans);
  const entries = sum.entries.filter(
    one => one.nbytes !== 0 || one.note || one.kind === 'unexplained'
  );
  const isWhole = sum.entries.every(one => one.nbytes !== null);
  // what is less than 0 has no length: the table tells it
  const drawn = entries.filter(one => (one.nbytes ?? 0) > 0);
  const whole = drawn.reduce((total, one) => total + (one.nbytes ?? 0), 0);
  const colour = (entry: IEntry) =>
    `jp-gpumem-tone${sum.entries.indexOf(entry) % 8}`;
  return (
    <table className="jp-gpumem-sum">
      <caption>
        <span className="jp-gpumem-heading">
          {title}
          <span className="jp-gpumem-number">{bytes(sum.total)}</span>
        </span>
        {isWhole && whole > 0 && (
          <span className="jp-gpumem-bar" aria-hidden="true">
            {drawn.map(one => (
              <span
                key={one.kind}
                className={`jp-gpumem-part ${colour(one)}`}
                style={{ width: `${share(one.nbytes, whole)}%` }}
              />
            ))}
          </span>
        )}
      </caption>
      <tbody>
        {entries.map(one => (
          <tr key={one.kind}>
            <th scope="row">
              <span
                className={`jp-gpumem-swatch ${colour(one)}`}
                aria-hidden="true"
              />{' '}
              {named.get(one.kind) ?? one.kind}
              {one.note && (
                <span className="jp-gpumem-what">{told(one.note, trans)}</span>
              )}
            </th>
            <td className="jp-gpumem-number">
              {one.nbytes === null ? NOT_AVAILABLE : bytes(one.nbytes)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The kernel's words for the parts of a sum. */
function parts(trans: TranslationBundle): ReadonlyMap<string, string> {
  return new Map([
    ['names', trans.__('names')],
    ['graphs', trans.__('autograd graphs')],
    ['dangling', trans.__('dangling')],
    ['libraries', trans.__('libraries and registries')],
    ['running', trans.__('running code')],
    ['rounding', trans.__('rounding')],
    ['unexplained', trans.__('unexplained')],
    ['outside', trans.__('outside this allocator')],
    ['allocated', trans.__('allocated')],
    ['awaiting', trans.__('freed, awaiting a stream')],
    ['cached', trans.__('cached, can go back')],
    ['fragments', trans.__('fragments, cannot go back')],
    ['private', trans.__('private pools')],
    ['reserved', trans.__('reserved')],
    ['context', trans.__('context and libraries')],
    ['others', trans.__('other processes')],
    ['unattributed', trans.__('unattributed')],
    ['tensors', trans.__('its tensors')],
    ['rest', trans.__('the rest of it: Python, libraries, data')],
    ['resident', trans.__('this process, resident')],
    ['system', trans.__('other processes and the system')]
  ]);
}
