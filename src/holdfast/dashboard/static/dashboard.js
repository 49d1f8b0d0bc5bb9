// What pages do beyond HTML: keep the chosen theme, keep themselves fresh, keep a button from being pressed twice.
// Nothing needs it: every page reads and acts without.
"use strict";

// -- theme: before the first paint, so that nothing flashes

const THEMES = ["auto", "light", "dark"];

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("holdfast-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto"; // storage is forbidden here
  }
}

showTheme(storedTheme());

function offerThemes() {
  const button = document.querySelector("[data-theme-switch]");
  const text = button.querySelector("[data-theme-text]");
  text.textContent = storedTheme();
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(text.textContent) + 1) % THEMES.length];
    text.textContent = next;
    showTheme(next);
    try {
      localStorage.setItem("holdfast-theme", next);
    } catch {
      // It lasts for this page only.
    }
  });
}

// -- morph: make one tree like another and leave alone what the visitor is using

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id : "";
}

function isAlike(one, other) {
  return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function isInUse(form) {
  if (form.contains(document.activeElement)) return true;
  return Array.from(form.elements).some((each) => {
    if (each.type === "hidden") return false;
    if (each.type === "checkbox" || each.type === "radio") return each.checked !== each.defaultChecked;
    if (each.tagName === "SELECT") {
      const chosen = Array.from(each.options).some((option) => option.defaultSelected);
      return chosen
        ? Array.from(each.options).some((option) => option.selected !== option.defaultSelected)
        : each.selectedIndex > 0;
    }
    return "defaultValue" in each && each.value !== each.defaultValue;
  });
}

function morph(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== Node.ELEMENT_NODE) {
    from.nodeValue = to.nodeValue;
    return;
  }
  if (from.nodeName === "FORM" && isInUse(from)) return;
  if (from.classList.contains("unfolded") && from.querySelector("[data-family]")) return; // what was unfolded stays
  const isDetails = from.nodeName === "DETAILS"; // whether it is open is the visitor's choice
  if (isDetails && to.hasAttribute("data-wanted") && !from.hasAttribute("data-wanted")) from.open = true; // until now
  for (const { name } of Array.from(from.attributes)) {
    if (!to.hasAttribute(name) && !(isDetails && name === "open")) from.removeAttribute(name);
  }
  for (const { name, value } of Array.from(to.attributes)) {
    if (from.getAttribute(name) !== value && !(isDetails && name === "open")) from.setAttribute(name, value);
  }
  morphChildren(from, to);
}

function morphChildren(from, to) {
  const wanted = new Set(Array.from(to.children, keyOf));
  let here = from.firstChild;
  for (const next of Array.from(to.childNodes)) {
    const key = keyOf(next);
    if (key) {
      // A row that moved is moved, not made again.
      const old = Array.from(from.children).find((each) => each.id === key);
      if (old && old !== here) from.insertBefore(old, here);
      if (old) here = old;
    } else {
      while (here && keyOf(here) && !wanted.has(keyOf(here))) here = removed(here);
    }
    if (here && isAlike(here, next)) {
      morph(here, next);
      here = here.nextSibling;
    } else {
      from.insertBefore(document.importNode(next, true), here);
    }
  }
  while (here) here = removed(here);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// -- live: a tick says that something has changed; then the page asks for itself

class Live {
  constructor(main, button) {
    this.main = main;
    this.button = button;
    this.text = button.querySelector("[data-live-text]");
    this.wanted = true;
    this.source = null;
    this.busy = false;
    this.again = false;
    button.hidden = false;
    button.addEventListener("click", () => this.toggle());
    document.addEventListener("visibilitychange", () => this.follow());
    this.follow();
  }

  toggle() {
    this.wanted = !this.wanted;
    this.button.setAttribute("aria-pressed", String(this.wanted));
    this.follow();
  }

  follow() {
    // A hidden page holds no connection: browsers have few for each server.
    const listens = this.wanted && document.visibilityState === "visible";
    if (listens && !this.source) this.listen();
    if (!listens && this.source) {
      this.source.close();
      this.source = null;
    }
    this.say(this.wanted ? "Live" : "Paused", false);
  }

  listen() {
    const source = new EventSource("/live");
    source.addEventListener("tick", () => this.refresh());
    source.addEventListener("open", () => this.say("Live", false));
    source.addEventListener("error", () => {
      this.say("Offline", true);
      if (source.readyState !== EventSource.CLOSED || this.source !== source) return;
      this.source = null;
      setTimeout(() => this.follow(), 5000);
    });
    this.source = source;
  }

  say(text, lost) {
    this.text.textContent = text;
    this.button.toggleAttribute("data-lost", lost);
  }

  async refresh() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (response.redirected) return location.reload(); // the session has ended
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const main = page.querySelector("main[data-live]");
      if (response.ok && main && this.wanted) {
        morph(this.main, main);
        document.title = page.title;
        this.main.dispatchEvent(new CustomEvent("holdfast:fresh", { bubbles: true }));
      }
    } catch {
      this.say("Offline", true);
    } finally {
      this.busy = false;
    }
    if (this.again) {
      this.again = false;
      this.refresh();
    }
  }
}

// -- instants that grow older while one looks

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function ago(instant) {
  const seconds = (Date.now() - instant) / 1000;
  const [size, unit] = UNITS.find(([each]) => Math.abs(seconds) >= each) || [1, "s"];
  const count = Math.floor(Math.abs(seconds) / size);
  if (count === 0) return "now";
  return seconds > 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
}

function growOlder() {
  for (const each of document.querySelectorAll("time[data-ago]")) {
    const text = ago(Date.parse(each.dateTime));
    if (each.textContent !== text) each.textContent = text;
  }
}

// -- in place: a link that shows another part of the same page changes that part, and the place where one reads stays

async function showInPlace(main, href, isNew) {
  const response = await fetch(href, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.querySelector("main[data-live]");
  if (!response.ok || response.redirected || !fresh) return location.assign(href);
  if (isNew) history.pushState(null, "", href);
  morph(main, fresh);
  document.title = page.title;
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.id.startsWith("track-")) target.scrollIntoView({ block: "center" });
}

function offerInPlace(main) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[data-in-place]");
    if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const href = link.href.baseVal === undefined ? link.href : new URL(link.href.baseVal, location.href).href;
    showInPlace(main, href, true).catch(() => location.assign(href));
  });
  addEventListener("popstate", () => showInPlace(main, location.href, false).catch(() => location.reload()));
}

// -- a stretch of the minimap is chosen by dragging over it, too: from the first link to the last

function offerDragging() {
  let from = null;
  const stretchAt = (event) => event.target.closest && event.target.closest("[data-minimap] a");
  document.addEventListener("pointerdown", (event) => {
    from = stretchAt(event);
    if (from) event.preventDefault(); // no text is selected, and no link dragged away
  });
  document.addEventListener("pointerup", (event) => {
    const begin = from;
    const end = stretchAt(event);
    from = null;
    if (!begin || !end || begin === end) return;
    const one = new URL(begin.href.baseVal, location.href);
    const other = new URL(end.href.baseVal, location.href);
    const bounds = [one, other].flatMap((each) => ["since", "until"].map((name) => Number(each.searchParams.get(name) || 0)));
    one.searchParams.set("since", Math.min(...bounds));
    one.searchParams.set("until", Math.max(...bounds));
    const main = document.querySelector("main[data-live]");
    showInPlace(main, one.href, true).catch(() => location.assign(one.href));
  });
}

// -- a branch of a tree gets its own when it is unfolded

async function unfold(branch) {
  const place = branch.querySelector(":scope > .unfolded");
  if (!branch.open || branch.dataset.unfolded || !place) return;
  branch.dataset.unfolded = "true";
  try {
    const response = await fetch(branch.dataset.unfold, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const family = page.querySelector("[data-family]");
    if (response.ok && family) place.replaceChildren(document.importNode(family, true));
  } catch {
    delete branch.dataset.unfolded; // the link is still there
  }
}

document.addEventListener("DOMContentLoaded", () => {
  offerThemes();
  const main = document.querySelector("main[data-live]");
  const button = document.querySelector("[data-live-switch]");
  // The response to a form that was refused is no page that one can ask for again.
  if (main && button && !main.querySelector("[role=alert]")) new Live(main, button);
  if (main) offerInPlace(main);
  offerDragging();
  document.addEventListener("toggle", (event) => event.target.dataset && event.target.dataset.unfold && unfold(event.target), true);
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("submit", (event) => {
    const pressed = event.target.querySelector("button");
    if (event.target.method === "post" && pressed) setTimeout(() => (pressed.disabled = true));
  });
  // Back from the cache of the browser a page is as it was left, its button included.
  addEventListener("pageshow", () => {
    for (const each of document.querySelectorAll("button[disabled]")) each.disabled = false;
  });
  setInterval(growOlder, 5000);
});
