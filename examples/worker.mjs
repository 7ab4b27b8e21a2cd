// A Hawser worker in JavaScript: claims over HTTP, keeps its leases, settles. Needs Node 18 or newer and nothing else.
//
//     node examples/worker.mjs http://127.0.0.1:8080 js
//
// HAWSER_KEY is an API key with the role worker; on the server's own machine none is needed. SIGTERM drains.

const [server = "http://127.0.0.1:8080", queue = "js"] = process.argv.slice(2);
const LEASE = 30; // seconds that a crash of this process keeps its jobs from others

const tasks = {
  add: ({ a, b }) => a + b,
};

async function post(path, body, tries = 5) {
  const headers = { "content-type": "application/json" };
  if (process.env.HAWSER_KEY) headers.authorization = `Bearer ${process.env.HAWSER_KEY}`;
  for (let turn = 1; ; turn++) {
    try {
      const response = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
      if (response.ok) return await response.json();
      if (response.status !== 429 && response.status !== 503) throw new Error(await response.text());
    } catch (error) {
      if (turn === tries) throw error;
    }
    // Every call may be repeated: a settlement is written once, whatever became of the first answer.
    await new Promise((wake) => setTimeout(wake, 100 * 2 ** turn * Math.random()));
  }
}

async function run(job) {
  const stop = new AbortController();
  const keep = setInterval(async () => {
    const { results } = await post("/extensions", { leases: [{ id: job.id, lease: job.lease }], lease_for: LEASE });
    if (results[0] !== "held") stop.abort(); // lost to another worker, or a user cancelled it
  }, (LEASE * 1000) / 3);
  const settlement = { id: job.id, lease: job.lease };
  try {
    const task = tasks[job.task];
    if (!task) throw new Error(`this worker has no task ${job.task}`);
    Object.assign(settlement, { outcome: "done", result: (await task(job.payload, stop.signal)) ?? null });
  } catch (error) {
    Object.assign(settlement, { outcome: "retry", error: String(error) });
  } finally {
    clearInterval(keep);
  }
  const { results } = await post("/settlements", { settlements: [settlement] });
  console.log(`${job.task} ${job.id}: ${settlement.outcome}, ${results[0]}`);
}

let draining = false;
process.on("SIGTERM", () => (draining = true));
while (!draining) {
  const claim = { queues: [queue], limit: 10, lease_for: LEASE, wait: 2, worker: `node-${process.pid}` };
  const { jobs } = await post("/claims", claim);
  await Promise.all(jobs.map(run));
}
