// An action on many jobs while it runs: how far it is, and a way to stop it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { mayAct, type Operation, post } from "../api";
import { ended } from "../actions";
import { refresh, useLoad } from "../live";
import { attempt } from "./dialog";

const underWay = (operation: Operation): boolean => operation.state === "running" || operation.state === "interrupted";

export function Progress(props: { start: Operation; onClose: () => void }): JSX.Element {
  const [operation, setOperation] = useState(props.start);
  const { data } = useLoad<Operation>(underWay(operation) ? `operations/${props.start.id}` : undefined, 1_000, 1_000);
  useEffect(() => { setOperation(props.start); }, [props.start.id]);
  useEffect(() => { if (data?.id === props.start.id) setOperation(data); }, [data]);
  useEffect(() => { if (!underWay(operation)) refresh(); }, [operation.state]);
  return (
    <div class={`operation ${operation.state}`} role="status">
      <span class="grow"><b>{operation.action}</b>: {ended(operation)}{operation.state === "running" ? " …" : operation.state === "interrupted" ? ", waits for a server to go on" : `, ${operation.state}`}{operation.error && <>: {operation.error}</>}</span>
      {underWay(operation) && mayAct()
        ? <button type="button" class="small danger" onClick={() => void attempt(async () => { setOperation(await post<Operation>(`operations/${operation.id}/stop`)); })}>Stop</button>
        : <button type="button" class="small quiet" onClick={props.onClose}>Close</button>}
    </div>
  );
}
