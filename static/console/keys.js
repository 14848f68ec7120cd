/* Single-key shortcuts: / ? j k x [ ] and g-sequences. Off with one preference (data-keys="off").
   Synthetic, repeated and composing events and anything typed into a field are ignored. */
(() => {
  "use strict";
  const SEQUENCE_MS = 1200;
  const TYPING = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";
  let goUntil = 0;

  const rows = () => [...document.querySelectorAll("[data-rows] .row-link")].filter((one) => one.offsetParent);
  const move = (step) => {
    const links = rows();
    if (!links.length) return false;
    const at = links.indexOf(document.activeElement?.closest("tr, li")?.querySelector(".row-link"));
    const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step));
    links[next].focus({ focusVisible: true });
    links[next].closest("tr, li").scrollIntoView({ block: "nearest" });
    return true;
  };
  const click = (selector) => {
    const element = document.querySelector(selector);
    if (element) element.click();
    return Boolean(element);
  };
  const select = () => {
    const box = document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]");
    if (box) box.click();
    return Boolean(box);
  };
  const goTo = () => {
    const sidebar = document.getElementById("sidebar");
    const field = document.getElementById("go-to");
    if (!field) return false;
    if (!field.offsetParent && sidebar) sidebar.showPopover();
    field.focus();
    field.select();
    return true;
  };
  const help = () => {
    const sheet = document.getElementById("shortcuts");
    if (sheet) sheet.togglePopover();
    return Boolean(sheet);
  };
  const ACTS = {
    "/": goTo, "?": help, j: () => move(1), k: () => move(-1), x: select,
    "[": () => click("a[rel=prev]"), "]": () => click("a[rel=next]"),
  };

  const ignored = (event) =>
    !event.isTrusted || event.defaultPrevented || event.isComposing || event.keyCode === 229 || event.repeat && !"jk".includes(event.key) ||
    event.ctrlKey || event.metaKey || event.altKey || document.documentElement.dataset.keys === "off";

  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.matches(TYPING);
    if (event.key === "Escape" && typing) { event.target.blur(); return; }
    if (ignored(event) || typing) return;
    const now = Date.now();
    if (now < goUntil) {
      goUntil = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.assign(link.href); return; }
    }
    if (event.key === "g") { goUntil = now + SEQUENCE_MS; return; }
    const act = Object.hasOwn(ACTS, event.key) ? ACTS[event.key] : null;
    if (act && act()) event.preventDefault();
  });
})();
