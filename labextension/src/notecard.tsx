/** A card that takes the focus when what it says changes, so that keyboard and screen reader follow. */
import * as React from 'react';

export function Notecard(props: {
  title: string;
  focus: string;
  children: React.ReactNode;
}): JSX.Element {
  const heading = React.useRef<HTMLHeadingElement>(null);
  React.useEffect(() => heading.current?.focus(), [props.focus]);
  return (
    <section className="jp-gpumem-notecard" aria-label={props.title}>
      <h3 ref={heading} tabIndex={-1} className="jp-gpumem-heading">
        {props.title}
      </h3>
      {props.children}
    </section>
  );
}
