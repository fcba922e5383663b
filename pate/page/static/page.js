"use strict";
// What all pages have. Foreign text enters a page as text nodes, and never as markup.
// The page's own script has WHO serves it, begin(), show(told), and ended(told, at): how it ended, null if it did not.

const SIGN_OF_LIFE_MS = 15000; // the server gives one every five seconds
const AGAIN_MS = 2000;
const root = document.documentElement;
let source = null, timer = 0, last = null, lostAt = null;

// --- the theme, before anything is drawn ---------------------------------------------------------

const wished = matchMedia("(prefers-color-scheme: dark)");
function kept() { try { return localStorage.getItem("pate-theme"); } catch { return null; } }
function dark() { return root.dataset.theme ? root.dataset.theme === "dark" : wished.matches; }
if (["dark", "light"].includes(kept())) root.dataset.theme = kept();

function startTheme() {
  const button = $("theme");
  const tell = () => { button.textContent = dark() ? "Light mode" : "Dark mode"; }; // what pressing it does
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("pate-theme", root.dataset.theme); } catch { /* it is not remembered */ }
    tell();
  });
  wished.addEventListener("change", tell);
  tell();
}

// --- small things ----------------------------------------------------------------------------------

function $(id) { return document.getElementById(id); }

function make(tag, text, attributes = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== null && text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function put(id, text) { if ($(id).textContent !== text) $(id).textContent = text; }

// Fill an element anew, but only when what it shows has changed: a reader of the screen is left alone.
const shown = new Map();
function fill(element, value, draw) {
  const text = JSON.stringify(value);
  if (shown.get(element) === text) return false;
  shown.set(element, text);
  element.replaceChildren(...draw(value));
  return true;
}

function card(id, there) { $(id).closest("section").hidden = !there; }
function count(number) { return number.toLocaleString("en"); }
function many(number, one, more) { return `${count(number)} ${number === 1 ? one : more}`; }

// --- the connection --------------------------------------------------------------------------------

function say(text) { put("said", text); }

function state(name, words) { $("link").dataset.state = name; put("link-text", words); }

function alive() {
  clearTimeout(timer);
  timer = setTimeout(() => lost("nothing was heard for a while"), SIGN_OF_LIFE_MS);
  if (lostAt !== null) say("The connection is back.");
  lostAt = null;
  $("lost").hidden = true;
  delete root.dataset.gone;
  state("live", "live");
}

async function lost() {
  clearTimeout(timer);
  source?.close();
  lostAt ??= new Date();
  const at = lostAt.toLocaleTimeString("en-GB"), end = last ? ended(last, at) : null;
  const reply = await fetch("/api/overview", { cache: "no-store" }).catch(() => null);
  const refused = reply?.status === 401, full = reply?.status === 503;
  $("lost").classList.toggle("ended", Boolean(end?.well) && !refused);
  put("lost-text", refused ? `The ${WHO} does not know this browser any more. Open the link that it printed when it started.`
    : full ? `As many browsers follow this ${WHO} as it serves at a time. Trying again…`
    : end ? end.words
    : `Connection to the ${WHO} lost at ${at}. Below is what it said last. Trying again…`);
  $("lost").hidden = false;
  root.dataset.gone = "";
  state("lost", end ? `${WHO} ended` : "connection lost");
  setTimeout(connect, AGAIN_MS);
}

function connect() {
  source?.close();
  source = new EventSource("/api/stream");
  source.addEventListener("overview", (event) => { alive(); show(JSON.parse(event.data)); });
  source.addEventListener("sign", alive);
  source.addEventListener("error", () => lost());
}

document.addEventListener("DOMContentLoaded", () => {
  startTheme();
  begin();
});
