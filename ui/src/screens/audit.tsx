import type { JSX } from "preact";
import { type Audit, path, ROOT } from "../api";
import { useLoad } from "../live";
import { Ago, Card, Empty, Failed, JobLink, Loading, Table } from "../parts/basic";
import { href, Link, place, set } from "../router";
import { filledIn, local, number } from "../words";
import { BatchLink } from "./batches";

interface Page { audit: Audit[]; next: number | null }

function Target(props: { record: Audit }): JSX.Element {
  const { target } = props.record;
  const [kind, name] = [target.slice(0, target.indexOf(":")), target.slice(target.indexOf(":") + 1)];
  if (kind === "queue") return <Link to={href(`queues/${encodeURIComponent(name)}`)}>{target}</Link>;
  if (kind === "batch") return <BatchLink id={name} />;
  if (kind === "task") return <Link to={href("jobs", { task: name })}>{target}</Link>;
  return /^[0-9a-f-]{36}$/.test(target) ? <JobLink id={target} /> : <>{target}</>;
}

export function AuditScreen(): JSX.Element {
  const query = place.value.query;
  const [action, by, target, since, after] = ["action", "by", "target", "since", "after"].map((name) => query.get(name) ?? undefined);
  const { data, error, status } = useLoad<Page>(path("audit", { action, by, target, since, after, limit: 50 }));
  if (!data) return status === 403 ? <Empty title="The audit is for operators">Your key may look at everything else.</Empty> : error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <div class="title"><h1>Audit</h1><div class="buttons">
        <label class="beside">Since <input type="datetime-local" value={since ? local(since) : ""} onChange={(event) => set({ since: event.currentTarget.value ? filledIn(event.currentTarget.value) : undefined, after: undefined })} /></label>
        {(action || by || target || since) && <Link class="button" to={href("audit")}>All records</Link>}
        <a class="button quiet" href={String(new URL(path("audit", { action, by, target, since, limit: 500 }), ROOT))} download="audit.json">JSON</a>
      </div></div>
      {target && <p class="muted">Of {target} only.</p>}
      <Card class="flush">
        {data.audit.length ? <Table label="Audit" rows={data.audit} id={(record) => String(record.number)} columns={[
          { name: "When", cell: (record) => <Ago at={record.at} /> },
          { name: "Who", cell: (record) => <Link to={href("audit", { by: record.by })}>{record.by}</Link> },
          { name: "What", cell: (record) => <Link to={href("audit", { action: record.action })}>{record.action.replaceAll("_", " ")}</Link> },
          { name: "To", cell: (record) => <Target record={record} /> },
          { name: "Jobs", right: true, minor: true, cell: (record) => number(record.count) },
          { name: "Why", wide: true, minor: true, cell: (record) => [...Object.entries(record.filter ?? {}).map(([name, value]) => `${name}:${value}`), record.reason ?? ""].join(" ") },
        ]} /> : <Empty title="Nobody has done anything yet">Pauses, replays, cancels and changes of settings are written here, with who and why.</Empty>}
      </Card>
      <div class="pages">{after && <Link class="button" to={href("audit", { action, by, target, since })}>Newest</Link>}{data.next !== null && <Link class="button" to={href("audit", { action, by, target, since, after: String(data.next) })}>Older</Link>}</div>
    </>
  );
}
