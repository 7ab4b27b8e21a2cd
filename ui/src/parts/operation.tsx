// An action on many jobs while it runs: how far it is, and a way to stop it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, mayAct, type Operation, post } from "../api";
import { ended } from "../actions";
import { refresh } from "../live";
import { attempt } from "./dialog";

const underWay = (operation: Operation): boolean => operation.state === "running" || operation.state === "interrupted";

export function Progress(props: { start: Operation; onClose: () => void; onEnd?: (operation: Operation) => void }): JSX.Element {
  const [operation, setOperation] = useState(props.start);
  useEffect(() => {
    if (!underWay(operation)) { props.onEnd?.(operation); refresh(); return; }
    const timer = setTimeout(() => {
      get<Operation>(`operations/${operation.id}`).then(setOperation, () => setOperation({ ...operation }));
    }, 1_000);
    return () => clearTimeout(timer);
  }, [operation]);
  return (
    <div class={`operation ${operation.state}`} role="status">
      <span class="grow"><b>{operation.action}</b>: {ended(operation)}{operation.state === "running" ? " …" : operation.state === "interrupted" ? ", waits for a server to go on" : `, ${operation.state}`}</span>
      {underWay(operation) && mayAct()
        ? <button type="button" class="small danger" onClick={() => void attempt(async () => { setOperation(await post<Operation>(`operations/${operation.id}/stop`)); })}>Stop</button>
        : <button type="button" class="small quiet" onClick={props.onClose}>Close</button>}
    </div>
  );
}
