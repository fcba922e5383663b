"use strict";
// The campaign, as its server shows it.

const WHO = "server";
const PHASES = { gathering: "Gathering", voting: "Voting", labelling: "Labelling", predicting: "Predicting", finished: "Finished" };
const CHECKS = { doors: "Parties", link: "Messages to parties", ledger: "Ledger", student: "Student service", certificates: "Certificates", noise: "Noise", interrupted: "Interruptions" };

// --- small things ----------------------------------------------------------------------------------

function body(id) { return $(id).tBodies[0]; }
// A text with `commands` in it.
function prose(text) { return text.split("`").map((part, at) => at % 2 ? make("code", part) : part); }
function epsilon(value) { return String(Math.ceil(Number((value * 1e4).toFixed(6))) / 1e4); } // never smaller than it is
function delta(value) { return value > 0 && value < 0.001 ? value.toExponential().replace("e-0", "e-") : String(value); }
function share(value) { return `${(100 * value).toFixed(1)} %`; }
function charged(value) { return Math.ceil(Number((value * 1000).toFixed(6))) / 10; }
function listed(words) { return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`; }

function time(stamp) {
  const to = stamp.length > 17 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
  return make("time", new Date(stamp).toLocaleTimeString("en-GB", to), { datetime: stamp, title: stamp });
}

// Envelopes are out for days.
function date(stamp) {
  const to = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };
  return make("time", new Date(stamp).toLocaleString("en-GB", to), { datetime: stamp, title: stamp });
}

// --- the campaign ----------------------------------------------------------------------------------

function sentence(o) {
  const missing = o.wanted - o.connected, q = o.queries;
  if (o.failed) return `Failed: ${o.failed}`;
  if (o.phase === "gathering") return missing > 0 ? `Waiting for ${many(missing, "more party", "more parties")} to join.` : "All parties are here.";
  if (o.phase === "voting") return `${inRounds(o) ? `Round ${o.round} of ${o.rounds}. ` : ""}${o.step ? `The parties are being asked for ${o.step}.` : "The parties’ votes are being collected."}`;
  if (o.phase === "labelling") return `Round ${o.round} of ${o.rounds}: ${q.labelled ? "labels" : inRounds(o) ? "noisy sums" : "noisy counts"} are being released.`;
  if (o.phase === "predicting") return `Round ${o.round} of ${o.rounds} waits for the student’s predictions.`;
  const counts = inRounds(o) ? "noisy sums and models" : "noisy counts";
  return `The campaign is finished: ${q.labelled || !q.asked ? many(q.labels, "label", "labels") : counts} released.`;
}

// Whether records vote in rounds: then votes come before each release, and no query gets a label.
function inRounds(o) { return o.rounds > 1 && !o.queries.labelled; }

function phase(o, name) { return name === "labelling" && !o.queries.labelled ? "Releasing" : PHASES[name]; }

// The steps of a campaign and which one it is at; few rounds are steps of their own.
function steps(o) {
  let each = o.phases.map((name) => [name, phase(o, name)]);
  if (o.rounds > 1 && o.rounds < 4 && !inRounds(o)) {
    const asks = o.phases.includes("predicting");
    const rounds = Array.from({ length: o.rounds }, (_, at) => at + 1).flatMap((round) => [
      ...(asks && round > 1 ? [[`predicting${round}`, `Predicting, round ${round}`]] : []),
      [`labelling${round}`, `${phase(o, "labelling")}, round ${round}`]]);
    each = [...each.slice(0, 2), ...rounds, each.at(-1)];
  }
  const names = each.map(([name]) => name), exact = names.indexOf(o.phase + o.round);
  return [each.map(([, words]) => words), exact < 0 ? names.indexOf(o.phase) : exact];
}

function show(o) {
  const before = last;
  last = o;
  document.title = `${o.failed ? "Failed" : phase(o, o.phase)} · ${o.campaign} · PATE server`;
  put("campaign", o.campaign);
  const votes = o.aggregation === "masked" ? "masked sums" : "plain sums";
  const noise = o.noise === "distributed" ? "noise by the parties" : "noise by the server";
  const voters = o.phase === "gathering" ? "" : `, ${o.teachers ? many(o.teachers, "teacher", "teachers") : "records vote themselves"}`;
  put("about", `${o.mechanism}${voters}, ${votes}, ${noise} · campaign ${o.id.slice(0, 8)}`);
  put("mechanism", `${o.mechanism_words}.`);
  $("mechanism").parentElement.hidden = !o.mechanism_words;

  fill($("phases"), steps(o), ([names, now]) => names.map((name, at) => {
    const item = make("li", name);
    if (at < now) { item.className = "past"; item.append(make("span", " (done)", { class: "unseen" })); }
    if (at === now) item.setAttribute("aria-current", "step");
    return item;
  }));
  put("sentence", sentence(o));
  $("sentence").classList.toggle("failed", o.failed !== "");
  const note = o.phase === "gathering" ? "What no option states, such as the classes or the noise, is fixed when all parties are here. This page shows it from then on."
    : o.phase === "finished" ? "This page ends with its server, which stores it as page.html in the campaign’s folder. pate-server resume brings both back." : "";
  put("note", note);
  $("note").hidden = !note;
  figures(o);
  commands(o.failed ? [] : o.commands);
  expected(o);
  budget(o.budget, o.gate, o.publish);
  parties(o);
  envelopes(o);
  labels(o);
  curve(o);
  student(o);
  health(o.checks);
  ledger(o);
  log(o.log);
  fill($("since"), o.began, (began) => ["The server took the campaign up at ", time(began), "."]);
  if (before === null || before.phase !== o.phase || before.round !== o.round || before.failed !== o.failed) say(`${phase(o, o.phase)}. ${sentence(o)}`);
}

function roster(o) { return o.parties.length + o.parties_unlisted; }

function figures(o) {
  const q = o.queries, over = o.phase === "finished";
  const who = over ? ["Parties", count(roster(o)), "in the roster"]
    : [o.by_envelope ? "Parties joined" : "Parties connected", count(o.connected), `of ${count(o.wanted)}; ${count(o.min_parties)} are needed`];
  const some = o.phase === "gathering" ? [who, ["Public set", count(q.public_set), "inputs"]] : q.directions ? [who, ...directions(o)] : [
    who,
    ["Queries with votes", count(q.votes_in), `of ${count(q.voted_on)} voted on`],
    ["Queries asked", count(q.asked), `public set of ${count(q.public_set)}`],
    q.labelled ? ["Labels released", count(q.labels), q.asked ? `${share(q.labels / q.asked)} of those asked` : "none yet"]
      : ["Noisy counts released", count(q.asked), "queries; none of them gets a label"],
  ];
  fill($("figures"), some, (all) => all.map(([name, value, note]) =>
    make("div", null, {}, make("dt", name), make("dd", value, {}, make("small", note)))));
}

// Of votes in directions: each round has one sum in all of them.
function directions(o) {
  const q = o.queries;
  if (!inRounds(o)) return [["Directions with votes", count(q.votes_in), `of ${count(q.directions)}`], ["Noisy sums released", count(q.asked), "directions; no query gets a label"]];
  return [["Directions", count(q.directions), `public set of ${count(q.public_set)} inputs`], ["Rounds with votes", count(q.votes_in / q.directions), `of ${count(o.rounds)}; the first counts classes`],
    ["Rounds released", count(q.asked / q.directions), "noisy sums; no query gets a label"]];
}

function commands(rows) {
  card("commands", rows.length > 0);
  fill($("commands"), rows, (all) => all.map((row) => {
    const line = make("code", row.line), button = make("button", "Copy", { type: "button", "aria-label": `Copy the command ${row.who}` });
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(line); // where the clipboard is not allowed, it is at least selected
      const copied = await navigator.clipboard?.writeText(row.line).then(() => true, () => false);
      button.textContent = copied ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return make("div", null, {}, make("dt", row.who), make("dd", null, {}, line, button));
  }));
}

function expected(o) {
  const e = o.phase === "finished" ? null : o.expected, early = o.budget === null;
  card("expect", e !== null || early);
  put("promise", `Privacy budget, at most: ${o.promise}.`);
  $("promise").hidden = !early;
  fill($("expect"), e?.text ?? "", (text) => text ? prose(`${text[0].toUpperCase()}${text.slice(1)}.`) : []);
  $("expect").classList.toggle("few", Boolean(e?.few));
  fill($("helps"), e?.advice ?? "", (text) => text ? prose(`What helps: ${text}`) : []);
  $("helps").hidden = !e?.advice;
}

function budget(b, gate, publish) {
  card("budget-bar", b !== null);
  if (b === null) return;
  const used = charged(b.spent), left = Math.round(10 * (100 - used)) / 10;
  const words = `epsilon ${epsilon(b.epsilon)} at delta ${delta(b.delta)} per ${b.unit}, towards the ${b.observer}: ${used} % charged, ${left} % left`;
  put("budget-words", words);
  const bar = $("budget-bar");
  bar.setAttribute("aria-valuenow", String(used));
  bar.setAttribute("aria-valuetext", words);
  bar.firstElementChild.style.width = `${used}%`;
  const notes = [
    `The guarantee is epsilon ${epsilon(b.epsilon)}, whatever is left of it. Adjacency: ${b.adjacency}.`,
    `What was charged so far is worth epsilon ${epsilon(b.epsilon_charged)} at the same delta. This is a reading and not a guarantee.`,
    b.epsilon_server === null ? "Towards the server nothing is promised." : `Towards the server: epsilon ${epsilon(b.epsilon_server)} at the same delta.`,
  ];
  if (publish === "gated") notes.push(gate === null ? "The labels leave together if a private test lets them; it was not tried yet." : `The private test is over: the gate is ${gate}.`);
  fill($("budget-more"), notes, (all) => all.map((note) => make("p", note)));
}

function parties(o) {
  const more = o.parties_unlisted ? `; ${count(o.parties_unlisted)} more are not listed` : "";
  const over = o.phase === "finished";
  put("parties-caption", over ? `${many(roster(o), "party", "parties")} in the roster; the campaign needs none of them any more${more}.`
    : `${many(o.connected, "party", "parties")} ${o.by_envelope ? "joined" : "connected"} of ${count(o.wanted)}${o.by_envelope ? `, ${count(o.by_envelope)} by envelope` : ""}${more}.`);
  $("parties").tHead.hidden = o.parties.length === 0;
  const d = o.queries.directions, each = d && inRounds(o) ? d : 1;
  put("counted", `${d ? each > 1 ? "Rounds" : "Directions" : "Queries"} with its votes`);
  fill(body("parties"), [o.parties, over, each], ([rows]) => rows.map((row) => make("tr", null, { role: "row" },
    make("th", row.name, { scope: "row", role: "rowheader" }),
    make("td", null, { role: "cell" }, over ? "ended" : row.by_envelope ? make("span", "by envelope", { class: "carried" }) : make("span", row.connected ? "connected" : "away", { class: row.connected ? "on" : row.trouble ? "trouble away" : "off" })),
    make("td", row.doing, row.trouble ? { role: "cell", class: "trouble" } : { role: "cell" }),
    make("td", row.total ? `${count(row.done / each)} of ${count(row.total / each)}` : "–", { role: "cell" }))));
}

// What became of an envelope: whether it needs a look, and how to say it.
const OUTCOMES = {
  waiting: [false, (row) => row.until ? ["awaited until ", date(row.until)] : ["awaited"]],
  closing: [false, () => ["awaited until the server has looked into its inbox"]],
  answered: [false, (row) => [date(row.answered)]],
  late: [true, (row) => [date(row.answered), ", too late: it is refused"]],
  lost: [true, () => ["none, and none is awaited any more"]],
  end: [false, () => ["needs none"]],
};

function envelopes(o) {
  const rows = o.envelopes, awaited = rows.filter((row) => ["waiting", "closing"].includes(row.state)).length;
  card("envelopes", rows.length > 0);
  const more = o.by_envelope > rows.length ? ` ${count(o.by_envelope - rows.length)} more are not listed.` : "";
  put("envelopes-caption", `The last one for each party; ${awaited ? many(awaited, "answer is", "answers are") : "no answer is"} awaited.${more}`);
  fill(body("envelopes"), rows, (all) => all.map((row) => {
    const [bad, words] = OUTCOMES[row.state];
    return make("tr", null, { role: "row" },
      make("th", row.party, { scope: "row", role: "rowheader" }),
      make("td", `${row.number}${row.asks ? `: ${row.asks}` : ""}`, { role: "cell" }),
      make("td", null, { role: "cell" }, date(row.made)),
      make("td", null, bad ? { role: "cell", class: "trouble" } : { role: "cell" }, ...words(row)));
  }));
}

function labels(o) {
  card("labels", o.queries.asked > 0 && o.queries.labelled);
  put("labels-caption", `${many(o.queries.labels, "label", "labels")} in ${many(o.labels.length, "class", "classes")}.`);
  const most = Math.max(1, ...o.labels.map((each) => each.labels));
  fill(body("labels"), o.labels, (rows) => rows.map((row) => {
    const bar = make("i");
    bar.style.width = `${(100 * row.labels) / most}%`;
    bar.hidden = row.labels === 0;
    return make("tr", null, {}, make("th", row.name, { scope: "row" }), make("td", count(row.labels), { class: "number" }), make("td", null, { "aria-hidden": "true" }, bar));
  }));
}

function student(o) {
  const asks = o.phases.includes("predicting");
  card("student", o.budget !== null && asks);
  put("student-words", o.student.length ? "" : "The student is asked for its predictions after the first round.");
  $("student-words").hidden = !$("student-words").textContent;
  $("student").hidden = $("student-notes").hidden = !o.student.length;
  fill(body("student"), o.student, (rows) => rows.map((row) => make("tr", null, {},
    make("th", String(row.round), { scope: "row" }),
    make("td", row.received ? "received" : "awaited"),
    make("td", row.agreement === null ? "–" : share(row.agreement), { class: "number" }),
    make("td", row.accuracy === null ? "not said" : share(row.accuracy), { class: "number" }))));
}

function health(checks) {
  fill($("checks"), checks, (all) => all.map((check) => make("li", null, check.ok ? {} : { class: "not-ok" },
    make("span", check.ok ? "✓" : "!", { class: "mark", "aria-hidden": "true" }),
    make("span", null, {}, make("strong", `${CHECKS[check.name] ?? check.name}${check.ok ? "" : " needs a look"}: `), check.text))));
}

function ledger(o) {
  card("ledger", o.budget !== null);
  put("ledger-caption", `${many(o.ledger_entries, "entry", "entries")}, the newest first.`);
  fill(body("ledger"), o.ledger, (rows) => rows.map((row) => make("tr", null, {},
    make("td", row.first === row.number ? String(row.number) : `${row.first}–${row.number}`, { class: "number" }), make("td", null, {}, time(row.time)), make("td", row.words))));
}

function log(lines) {
  const box = $("log-box"), low = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  const fresh = fill($("log"), lines, (all) => all.map((line) => make("li", null, { class: line.level },
    time(line.time), make("span", line.level === "info" ? line.text : `${line.level}: ${line.text}`))));
  if (fresh && low) box.scrollTop = box.scrollHeight; // whoever has scrolled up to read stays there
}

// --- the plot --------------------------------------------------------------------------------------

function draw(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

function ticks(most, wanted) {
  const rough = most / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => Number((at * step).toPrecision(6)));
}

function curve(o) {
  const points = o.curve, end = points.at(-1);
  card("plot", points.length > 1 && o.queries.labelled);
  if (points.length < 2 || !o.queries.labelled) return;
  const b = o.budget, once = o.publish === "gated" || !o.teachers;
  const words = `${once ? "One release, charged as a whole: " : ""}${many(end.labels, "label", "labels")} for charges that are worth epsilon ${epsilon(end.epsilon)}. The guarantee, the dashed line, is epsilon ${epsilon(b.epsilon)} at delta ${delta(b.delta)} per ${b.unit} (${b.adjacency}), towards the ${b.observer}.`;
  put("curve-words", words);
  const width = Math.max(260, $("plot").clientWidth), height = 240;
  fill($("plot"), [points, width, o.budget.epsilon], () => {
    const left = 44, right = width - 12, top = 22, bottom = height - 40;
    const mostX = Math.max(1, end.labels), mostY = 1.05 * Math.max(o.budget.epsilon, end.epsilon);
    const x = (value) => left + ((right - left) * value) / mostX, y = (value) => bottom - ((bottom - top) * value) / mostY;
    // A step: a release is charged before the first of its labels leaves.
    const path = `M${left} ${bottom}` + points.slice(1).map((p) => `V${y(p.epsilon).toFixed(1)}H${x(p.labels).toFixed(1)}`).join("");
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
    for (const tick of ticks(mostY, 4)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
        draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
    }
    for (const tick of ticks(mostX, Math.min(5, mostX))) {
      if (Number.isInteger(tick)) svg.append(draw("text", { x: x(tick), y: bottom + 16, "text-anchor": "middle" }, String(tick)));
    }
    svg.append(draw("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }),
      draw("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, "labels released"),
      draw("text", { x: 4, y: 12 }, "epsilon charged"),
      draw("line", { class: "cap", x1: left, x2: right, y1: y(o.budget.epsilon), y2: y(o.budget.epsilon) }),
      draw("text", { class: "cap-text", x: right, y: y(o.budget.epsilon) - 6, "text-anchor": "end" }, "guarantee"),
      draw("path", { class: "curve", d: path }),
      draw("circle", { class: "now", cx: x(end.labels), cy: y(end.epsilon), r: 4 }));
    return [svg];
  });
  const some = points.filter((_, at) => at === points.length - 1 || at % Math.ceil(points.length / 12) === 0);
  fill(body("curve"), some, (rows) => rows.map((p) => make("tr", null, {}, make("td", count(p.labels)), make("td", epsilon(p.epsilon)))));
}

// --- the connection --------------------------------------------------------------------------------

function ended(o, at) {
  if (o.failed) return { words: `The server has ended (${at}). Below is why, and what it said last.`, well: false };
  if (o.phase === "finished") return { words: `The campaign is finished and its server has ended (${at}); pate-server resume starts it again. Below is what it said last.`, well: true };
  return null;
}

function begin() {
  if ($("last")) {
    root.dataset.gone = "";
    show(JSON.parse($("last").textContent));
    state("wait", "stored page");
    put("note", `This is the page as its server stored it when it ended (${date(last.made).textContent}).`);
    $("note").hidden = false;
  } else connect();
  new ResizeObserver(() => { if (last) curve(last); }).observe($("plot"));
}
