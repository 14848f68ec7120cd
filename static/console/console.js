/* Makes the server's pages livelier: sent-once forms, copy, theme, fresh ages, polls, drafts, toasts.
   Everything works without it. All listeners are delegated, so a swapped part never loses one. */
(() => {
  "use strict";
  const root = document.documentElement;
  const texts = document.body.dataset;
  root.classList.add("js");

  const announce = (text) => {
    const live = document.getElementById("live");
    if (!live) return;
    live.textContent = "";
    window.setTimeout(() => { live.textContent = text; }, 50);
  };
  const setCookie = (name, value) => {
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=lax${secure}`;
  };

  /* A form is sent once. The second click finds it busy; the server has the form's key as well. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.method !== "post") return;
    if (form.getAttribute("aria-busy") === "true") {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    if (form.hasAttribute("data-once")) form.setAttribute("aria-busy", "true");
  }, true);
  const free = (element) => {
    const form = element instanceof Element && element.closest("form[aria-busy]");
    if (form) form.removeAttribute("aria-busy");
  };
  document.addEventListener("htmx:afterRequest", (event) => {
    const leaving = event.detail.xhr?.getResponseHeader("HX-Redirect");
    if (!leaving) free(event.detail.elt);
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) document.querySelectorAll("form[aria-busy]").forEach(free);
  });

  /* Copy. */
  const copyText = async (text) => {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr-only";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("copy refused");
  };
  const onCopy = (button) => {
    copyText(button.dataset.copy).then(() => {
      button.classList.add("is-done");
      announce(texts.copied || "");
      window.setTimeout(() => button.classList.remove("is-done"), 1500);
    }).catch(() => {});
  };

  /* Theme: the cookie is what the server renders next time. */
  const onTheme = (button) => {
    root.dataset.theme = button.value;
    setCookie("bz_theme", button.value);
    for (const other of button.form.querySelectorAll("button[name=theme]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
  };

  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    const button = event.target.closest("[data-copy], [data-theme-switch] button, [data-dismiss]");
    if (!button) return;
    if (button.matches("[data-copy]")) onCopy(button);
    else if (button.matches("[data-dismiss]")) button.closest("[data-toast]")?.remove();
    else { event.preventDefault(); onTheme(button); }
  });

  /* Ages stay true while the page is open. The words come from the server. */
  const units = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"]];
  const age = (moment) => {
    const seconds = Math.trunc((Date.now() - moment) / 1000);
    if (seconds > -2 && seconds < 2) return texts.agoNow;
    const span = Math.abs(seconds);
    const [, size, unit] = units.find(([limit]) => span < limit) || [0, 86400, "d"];
    const text = `${Math.trunc(span / size).toLocaleString("en-US")} ${unit}`;
    return (seconds > 0 ? texts.agoPast : texts.agoFuture).replace("%(span)s", text);
  };
  const freshen = () => {
    if (document.hidden || !texts.agoNow) return;
    for (const element of document.querySelectorAll("time [data-ago]")) {
      const moment = Date.parse(element.closest("time").dateTime);
      const text = Number.isNaN(moment) ? "" : age(moment);
      if (text && element.textContent !== text) element.textContent = text;
    }
  };
  window.setInterval(freshen, 10000);

  /* Polls: <div data-poll="5" hx-get="…?poll=1" hx-trigger="poll">. Never in a hidden tab, never two at
     once, never while a row below is selected or a field in it is being typed in. */
  const due = new WeakMap();
  const mayPoll = (element) =>
    !element.matches("[aria-busy=true]") && !element.contains(document.activeElement?.closest("input, textarea, select")) &&
    !element.querySelector("tbody input:checked, [popover]:popover-open");
  const poll = () => {
    if (document.hidden || !window.htmx) return;
    const now = Date.now();
    for (const element of document.querySelectorAll("[data-poll]")) {
      const every = Math.max(1, Number(element.dataset.poll)) * 1000;
      if (!due.has(element)) due.set(element, now + every);
      if (now < due.get(element) || !mayPoll(element)) continue;
      due.set(element, now + every);
      window.htmx.trigger(element, "poll");
    }
  };
  window.setInterval(poll, 500);
  document.addEventListener("visibilitychange", () => { freshen(); poll(); });
  const isPoll = (detail) => detail.elt instanceof Element && detail.elt.matches("[data-poll]");
  document.addEventListener("htmx:configRequest", (event) => {
    if (isPoll(event.detail)) event.detail.headers["HX-Polling"] = "true";
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event.detail)) event.detail.elt.setAttribute("aria-busy", "true");
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const { elt, successful } = event.detail;
    if (!isPoll(event.detail)) return;
    elt.removeAttribute("aria-busy");
    elt.classList.toggle("is-stale", !successful);
  });

  /* Answers that are no answer: say so, keep what is on the page. */
  const toast = (text, tone) => {
    const region = document.getElementById("toasts");
    if (!region || [...region.children].some((one) => one.textContent === text)) return;
    const box = document.createElement("div");
    box.className = `toast tone-${tone}`;
    box.dataset.toast = "";
    const words = document.createElement("span");
    words.textContent = text;
    box.append(words);
    region.append(box);
    window.setTimeout(() => box.remove(), 12000);
  };
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, () => toast(texts.lost, "warn"));
  }
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status !== 401) toast(texts.failed, "danger");
  });

  /* After a swap: focus what the part asks for, take over a fresh CSRF token, let good news fade. */
  const settle = () => {
    document.querySelector("[data-focus]:not([data-focused])")?.setAttribute("data-focused", "");
    document.querySelector("[data-focused]:not([data-focused='done'])")?.focus({ preventScroll: false });
    for (const one of document.querySelectorAll("[data-focused]")) one.dataset.focused = "done";
    const fresh = document.querySelector("[data-csrf]");
    if (fresh) {
      for (const field of document.querySelectorAll("input[name=csrfmiddlewaretoken]")) field.value = fresh.dataset.csrf;
      fresh.removeAttribute("data-csrf");
    }
    for (const one of document.querySelectorAll("[data-toast].tone-ok:not([data-fading])")) {
      one.dataset.fading = "";
      window.setTimeout(() => { if (!one.matches(":hover, :focus-within")) one.remove(); }, 8000);
    }
  };
  document.addEventListener("htmx:afterSettle", settle);
  document.addEventListener("htmx:oobAfterSwap", settle);
  document.addEventListener("htmx:afterSwap", (event) => {
    const words = event.detail.target?.querySelector?.("[data-announce]")?.dataset.announce;
    if (words) announce(words);
  });

  /* Drafts: when the sign-in is gone, htmx follows HX-Redirect. Typed notes wait in this tab. */
  const draftKey = (path) => `draft:${path}`;
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.status !== 401) return;
    const kept = [...document.querySelectorAll("[data-keep]")].filter((one) => one.value).map((one) => [one.name, one.value]);
    if (kept.length) sessionStorage.setItem(draftKey(location.pathname), JSON.stringify(kept));
  });
  const restore = () => {
    const text = sessionStorage.getItem(draftKey(location.pathname));
    if (!text || !document.querySelector("[data-keep]")) return;
    for (const [name, value] of JSON.parse(text)) {
      const field = [...document.querySelectorAll("[data-keep]")].find((one) => one.name === name && !one.value);
      if (field) field.value = value;
    }
    sessionStorage.removeItem(draftKey(location.pathname));
  };
  restore();
  settle();

  /* Checkboxes of a list: Shift selects the range. */
  let lastBox = null;
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.type !== "checkbox" || !box.closest("tbody")) return;
    if (event.shiftKey && lastBox && lastBox.closest("tbody") === box.closest("tbody")) {
      const boxes = [...box.closest("tbody").querySelectorAll("input[type=checkbox]")];
      const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const one of boxes.slice(from, to + 1)) if (!one.disabled) one.checked = box.checked;
    }
    lastBox = box;
  });
})();
