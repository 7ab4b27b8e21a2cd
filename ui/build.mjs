// Bundles the dashboard into the folder that is named on the command line: files named by their content, the index that refers
// to them, and the licences of the packages that went in.
import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";

const out = process.argv[2] ?? "dist";
const assets = join(out, "assets");
await rm(out, { recursive: true, force: true });
await mkdir(assets, { recursive: true });

const { metafile } = await build({
  entryPoints: { app: "src/main.tsx", theme: "src/theme.ts", style: "src/style.css" },
  outdir: assets,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  metafile: true,
  logLevel: "warning",
});

let index = await readFile("src/index.html", "utf8");
for (const [file, { entryPoint }] of Object.entries(metafile.outputs)) {
  if (entryPoint) index = index.replace(`{${basename(entryPoint)}}`, basename(file));
}
const left = index.match(/{[a-z]+\.[a-z]+}/);
if (left) throw new Error(`index.html names ${left[0]}, which was not built`);
await writeFile(join(out, "index.html"), index);

const bundled = new Set();
for (const file of Object.keys(metafile.inputs)) {
  const found = file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/);
  if (found) bundled.add(found[1]);
}
const licences = [];
for (const name of [...bundled].sort()) {
  const folder = join("node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} has no licence file, so it may not be distributed`);
  licences.push(`${name} ${version} (${license})\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`);
}
await writeFile(join(out, "licences.txt"), licences.join("\n\n"));
