/* A passkey: the browser's own ceremony, then the form is sent. The library comes when it is asked for. */
(() => {
  "use strict";
  const load = (address) => new Promise((resolve, reject) => {
    if (window.webauthnJSON) { resolve(); return; }
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-passkey]");
    if (!button || button.getAttribute("aria-busy") === "true") return;
    event.preventDefault();
    const form = button.form;
    const error = form.querySelector("[data-passkey-error]");
    button.setAttribute("aria-busy", "true");
    error.hidden = true;
    try {
      await load(button.dataset.library);
      const challenge = JSON.parse(button.dataset.challenge);
      const answer = await window.webauthnJSON[button.dataset.passkey](challenge);
      form.elements[button.dataset.field].value = JSON.stringify(answer);
      form.requestSubmit();
    } catch {
      error.textContent = button.dataset.failed;
      error.hidden = false;
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
})();
