(() => {
  let busy = false, again = false;
  const places = () => [...document.querySelectorAll("details")];
  const name = (one) => {
    const row = one.closest("[id]");
    return `${row ? row.id : ""} ${[...(row || document).querySelectorAll("details")].indexOf(one)}`;
  };
  function swap(fresh) {
    const open = new Map(places().map((one) => [name(one), one.open]));
    for (const one of fresh.querySelectorAll("details")) {
      if (open.has(name(one))) one.open = open.get(name(one));
    }
    const moved = [...document.querySelectorAll(".picture")].map((one) => [one.scrollLeft, one.scrollTop]);
    for (const part of ["header", "main"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
    [...document.querySelectorAll(".picture")].forEach((one, at) => { if (moved[at]) one.scrollTo(...moved[at]); });
    document.title = fresh.title;
  }
  async function refresh() {
    again = busy;
    if (busy) return;
    busy = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
      // The server has ended, which the stream of events reports.
      if (!(error instanceof TypeError)) throw error;
    } finally {
      // A large page takes the server a while, and the build needs the processor too.
      const pause = Math.max(300, 4 * (performance.now() - began));
      setTimeout(() => { busy = false; if (again) refresh(); }, pause);
    }
  }
  const state = document.getElementById("live");
  const source = new EventSource("events");
  source.onopen = () => { state.textContent = "Live: this page follows the run."; };
  source.onerror = () => { state.textContent = "Not live: `orch23 view` has ended."; };
  source.onmessage = refresh;
})();
