// A worker in plain JavaScript: it serves the effect `thumbnails.resize` of examples/thumbnails.py.
//
//     node examples/remote_worker.js        (Node 18 or newer; HOLDFAST_URL, HOLDFAST_API_KEY)
//
// Copy it and replace `effects`. An effect gets its input, its key to pass on as an idempotency key, what the last
// heartbeat said, a heartbeat() of its own, and a signal that is aborted when nobody wants the result any more.
const gateway = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8787";
const headers = { "Content-Type": "application/json" };
if (process.env.HOLDFAST_API_KEY) headers.Authorization = `Bearer ${process.env.HOLDFAST_API_KEY}`;
const lease = Number(process.env.LEASE_SECONDS ?? 30); // heartbeats renew it
const stopping = new AbortController();

const effects = {
  async "thumbnails.resize"({ image, width }, { key, last, heartbeat, signal }) {
    if (!/\.(png|jpe?g)$/.test(image)) throw Object.assign(new Error(image), { name: "NotAnImage", retry: false });
    for (let percent = last?.percent ?? 0; percent < 100; percent += 50) {
      signal.throwIfAborted();
      await heartbeat({ percent });
    }
    console.log(`performed ${key}`);
    return image.replace(/\.\w+$/, `-${width}$&`);
  },
};

async function post(path, said, signal) {
  const request = { method: "POST", headers, body: JSON.stringify(said), signal };
  for (;;) {
    const gone = (error) => (signal?.aborted ? Promise.reject(error) : { status: 503 });
    const answer = await fetch(`${gateway}/v1/tasks/${path}`, request).catch(gone);
    if (answer.ok) return answer.json();
    if (answer.status < 500) throw new Error(`${path}: ${(await answer.json()).detail}`); // no use in asking again
    await new Promise((resolve) => setTimeout(resolve, 500)); // said twice, it is answered alike
  }
}

async function perform({ id, fence, effect, input, key, last_heartbeat: last }) {
  const unwanted = new AbortController();
  const heartbeat = (details) => post(`${id}/heartbeat`, { fence, details }).then(
    (answer) => answer.wanted || unwanted.abort(), () => unwanted.abort()); // refused: somebody else has the task
  const timer = setInterval(heartbeat, (lease * 1000) / 3);
  const [verb, said] = await effects[effect](input, { key, last, heartbeat, signal: unwanted.signal }).then(
    (result) => ["complete", { result }],
    ({ name, message, retry, retry_after }) => ["fail", { error: { type: name, message }, retry, retry_after }]);
  clearInterval(timer);
  await post(`${id}/${verb}`, { fence, ...said }).catch((refused) => console.error(refused.message));
}

async function main() {
  const asked = { effects: Object.keys(effects), worker: `node-${process.pid}`, limit: 10, wait: 20, lease };
  while (!stopping.signal.aborted) {
    const { tasks } = await post("claim", asked, stopping.signal);
    await Promise.all(tasks.map(perform)); // what was claimed is brought to its end, also when it is to stop
  }
}

process.on("SIGTERM", () => stopping.abort());
main().catch((error) => stopping.signal.aborted || Promise.reject(error));
