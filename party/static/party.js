"use strict";
// What a party is asked, and two buttons to answer.

const WHO = "party";
// Sent with an answer. It comes with the link, and only this tab of this page has it.
let key = "";
// A second click of a double one must not answer a question that came under it.
const READ_MS = 1000;

function show(o) {
  const before = last;
  last = o;
  const asks = o.state === "asked" && !o.over;
  document.title = `${asks ? "Asked" : o.state === "ended" ? "Ended" : "PATE"} · ${o.party} · PATE party`;
  put("party", o.party);
  put("doing", asks ? "A campaign waits for your answer." : o.doing);
  for (const id of ["life", "rules", "left"]) card(id, true); // nothing is said of them before the party has
  card("terms", o.terms.length > 0);
  $("question").hidden = $("choice").hidden = !asks;
  fill($("terms"), [o.terms, o.campaign], ([terms, id]) => [["Campaign", id], ...terms].map(([name, text]) =>
    make("div", null, {}, make("dt", name), make("dd", text))));
  if (asks) {
    put("meaning", key ? $("meaning").dataset.words : "To answer, open the link that pate-party printed: this tab was opened in another way.");
    if (before?.asked !== o.asked) ready(false);
  }
  inputs(o);
  teachers(o.teachers);
  put("life", `${o.left.length + o.rows ? "All that has left" : "Nothing has left"}, by this party’s own accountant: ${o.life}.`);
  fill($("life-more"), [
    o.limit === null ? "Your policy sets no largest epsilon." : `Your policy stops at ${o.limit}.`,
    "The figure holds for any records, and does not depend on yours.",
    ...(o.rows ? [`With ${many(o.rows, "release", "releases")} of synthetic rows.`] : []),
  ], (all) => all.map((each) => make("p", each)));
  fill($("rules"), o.rules, (all) => all.map((each) => make("li", each)));
  $("left-none").hidden = o.left.length > 0;
  fill($("left"), o.left, (all) => all.map(([head, ...lines]) =>
    make("div", null, { class: "left" }, make("h3", head), make("ul", null, { class: "plain" }, ...lines.map((line) => make("li", line))))));
  if (before === null || before.state !== o.state || before.asked !== o.asked || before.over !== o.over) say($("doing").textContent);
}

function inputs(o) {
  const i = o.inputs;
  card("inputs", o.terms.length > 0);
  $("inputs").hidden = i === null;
  put("inputs-words", i === null ? (o.state === "asked" ? "The server sends it once you allow the campaign." : "The server has not sent it yet.")
    : `${many(i.all, "input", "inputs")}; these are the first of them. They are public, and not your data.`);
  fill($("inputs"), i, () => i === null ? [] : i.kind === "table" ? [table(i)] : i.kind === "images" ? [make("ol", null, { class: "pictures" }, ...i.pixels.map((each, at) => make("li", null, {}, picture(i, each, at))))] : [make("p", i.text)]);
}

function table(i) {
  const more = i.unlisted ? ["…"] : [];
  return make("table", null, {}, make("caption", i.unlisted ? `${many(i.unlisted, "more column is", "more columns are")} not shown.` : "All columns.", { class: i.unlisted ? "" : "unseen" }),
    make("thead", null, {}, make("tr", null, {}, ...[...i.names, ...more].map((name) => make("th", name, { scope: "col" })))),
    make("tbody", null, {}, ...i.rows.map((row) => make("tr", null, {}, ...[...row, ...more].map((cell) => make("td", cell))))));
}

// Pixels are drawn one by one: no decoder of pictures reads what a server sent.
function picture(i, text, at) {
  const [height, width, channels] = i.shape, bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const canvas = make("canvas", null, { width, height, role: "img", "aria-label": `Public input ${at + 1} of ${i.all}` });
  const drawn = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    for (let colour = 0; colour < 3; colour += 1) drawn.data[4 * pixel + colour] = bytes[channels * pixel + (channels === 3 ? colour : 0)];
    drawn.data[4 * pixel + 3] = 255;
  }
  canvas.getContext("2d").putImageData(drawn, 0, 0);
  return canvas;
}

function teachers([done, total]) {
  card("teachers", total > 0);
  if (!total) return;
  const words = `${count(done)} of ${count(total)} ready`;
  put("teachers-words", words);
  const bar = $("teachers");
  for (const [name, value] of [["aria-valuemax", total], ["aria-valuenow", done], ["aria-valuetext", words]]) bar.setAttribute(name, String(value));
  bar.firstElementChild.style.width = `${(100 * done) / total}%`;
}

function ready(yes) {
  for (const name of ["allow", "refuse"]) $(name).disabled = !(yes && key);
  const { asked } = last;
  if (!yes) setTimeout(() => { if (last.asked === asked) ready(true); }, READ_MS);
}

async function answer(says) {
  for (const name of ["allow", "refuse"]) $(name).disabled = true;
  const reply = await fetch(`/api/answer?${new URLSearchParams({ to: last.asked, says })}`, { method: "POST", headers: { "x-pate-key": key } }).catch(() => null);
  if (reply?.status === 204) {
    $("main").focus();
    return;
  }
  put("meaning", reply?.status === 409 ? "This question is answered already, or is another one now." : "The answer did not arrive. Open the link that pate-party printed, and try again.");
  say($("meaning").textContent);
  ready(false);
}

function ended(o, at) {
  return o.over ? { words: `This party has ended (${at}). Below is what it said last.`, well: o.state === "ended" } : null;
}

function begin() {
  const given = location.hash.slice(1);
  if (/^[0-9a-f]{64}$/.test(given)) {
    sessionStorage.setItem("pate-key", given);
    history.replaceState(null, "", "/");
  }
  key = sessionStorage.getItem("pate-key") ?? "";
  $("meaning").dataset.words = $("meaning").textContent;
  for (const says of ["allow", "refuse"]) $(says).addEventListener("click", () => answer(says));
  connect();
}
