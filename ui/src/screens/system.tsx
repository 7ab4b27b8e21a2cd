import type { JSX } from "preact";
import { logOut, me, type Stats, type System } from "../api";
import { keysOn, switchKeys } from "../keys";
import { line, useLoad } from "../live";
import { attempt } from "../parts/dialog";
import { Ago, Badge, Card, Fields, Table } from "../parts/basic";
import { number, seconds, size } from "../words";

export function SystemScreen(): JSX.Element {
  const stats = useLoad<Stats & { durability: string; keys: number }>("stats", 5_000);
  const ready = useLoad<{ status: string; durability: string }>("readyz", 5_000);
  const { data: system } = useLoad<System>("system", 10_000);
  const who = me.value;
  return (
    <>
      <h1>System</h1>
      <div class="pair">
        <Card title="Server"><Fields of={[
          ["Hawser", who?.version ?? "–"],
          ["Store", ready.data ? <Badge kind="good">takes writes</Badge> : ready.error ? <Badge kind="bad">{ready.error}</Badge> : "…"],
          ["Durability", stats.data?.durability ?? "–"],
          ["Kept at", system ? <span class="mono">{system.store}</span> : "–"],
          ["A read takes", system ? seconds(system.read_ms / 1000) : "–"],
          ["Python", system?.python ?? "–"],
          ["Workers", system ? Object.entries(system.workers).map(([version, count]) => `${count} of ${version}`).join(", ") || "none" : "–"],
          ["Updates", { live: "live, by /events", polling: "every five seconds: the stream of events is cut", hidden: "–", paused: "paused" }[line.value]],
          ["API", <a href={String(new URL("../../openapi.json", import.meta.url))}>openapi.json</a>],
        ]} /></Card>
        <Card title="You"><Fields of={[
          ["Name", <span class="mono">{who?.name}</span>],
          ["Roles", who?.roles.join(", ")],
          ["May change things", who?.read_only ? "no: this server is read-only" : who?.roles.some((role) => role === "operator" || role === "admin") ? "yes" : "no: ask for a key with the role operator"],
          ["Single keys", <label><input type="checkbox" checked={keysOn.value} onChange={(event) => switchKeys(event.currentTarget.checked)} /> on</label>],
        ]} />{who?.session && <button type="button" onClick={() => void attempt(logOut)}>Log out</button>}</Card>
        <Card title="Kept"><Fields of={[
          ["Done", number(stats.data?.done ?? 0)], ["Dead", number(stats.data?.dead ?? 0)], ["Cancelled", number(stats.data?.cancelled ?? 0)], ["Deduplication keys", number(stats.data?.keys ?? 0)],
          ...(system ? [["For", Object.entries(system.retention).map(([state, time]) => `${state} ${seconds(time)}`).join(", ")] as [string, string], ["Arguments up to", size(system.max_payload)] as [string, string]] : []),
        ]} /></Card>
        {!!system?.keys?.length && <Card title="Keys of the API"><Table label="Keys" rows={system.keys} id={(key) => key.name} columns={[
          { name: "Name", cell: (key) => <span class="mono">{key.name}</span> }, { name: "Roles", cell: (key) => key.roles.join(", ") }, { name: "Last used", cell: (key) => <Ago at={key.used_at} /> }, { name: "Ends", minor: true, cell: (key) => <Ago at={key.expires_at} /> },
        ]} /></Card>}
      </div>
    </>
  );
}
