// Keeps an open page up to date. Everything works without it; see vibey/flower/pages.py for the streams.
(function () {
  "use strict";

  const AGAIN_MS = 10000;
  const MOST_CHARACTERS = 400000;
  const MOST_ROWS = 5000;
  let clockOffset = 0;

  // As `lasting` in vibey/services/display.py has it: the two largest units.
  function lasting(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (value) => String(value).padStart(2, "0");
    if (whole < 60) { return whole + "s"; }
    if (whole < 3600) { return Math.floor(whole / 60) + "m " + two(whole % 60) + "s"; }
    if (whole < 86400) { return Math.floor(whole / 3600) + "h " + two(Math.floor(whole % 3600 / 60)) + "m"; }
    return Math.floor(whole / 86400) + "d " + Math.floor(whole % 86400 / 3600) + "h";
  }

  function tick() {
    const now = Date.now() + clockOffset;
    document.querySelectorAll("time[data-ago], time[data-since]").forEach(function (element) {
      const seconds = (now - Date.parse(element.dateTime)) / 1000;
      let words = lasting(seconds);
      if (element.hasAttribute("data-ago")) {
        words = seconds >= 0 ? words + " ago" : "in " + lasting(-seconds);
      }
      if (element.textContent !== words) { element.textContent = words; }
    });
  }

  function asOf(instant) {
    const element = document.getElementById("as-of");
    clockOffset = Date.parse(instant) - Date.now();
    element.dateTime = instant;
    element.title = instant;
    element.textContent = instant.slice(11, 19);
    tick();
  }

  // Makes `old` like `fresh`, touching only what differs: focus, selection and what was opened stay.
  function keyOf(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id || null : null;
  }

  function isAlike(one, other) {
    return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
  }

  function morphAttributes(old, fresh) {
    Array.from(old.attributes).forEach(function (attribute) {
      const isOpened = old.nodeName === "DETAILS" && attribute.name === "open";
      if (!isOpened && !fresh.hasAttribute(attribute.name)) { old.removeAttribute(attribute.name); }
    });
    Array.from(fresh.attributes).forEach(function (attribute) {
      if (old.getAttribute(attribute.name) !== attribute.value) { old.setAttribute(attribute.name, attribute.value); }
    });
  }

  function morphChildren(old, fresh) {
    const keyed = new Map();
    Array.from(old.childNodes).forEach(function (child) {
      if (keyOf(child) !== null) { keyed.set(child.nodeName + " " + keyOf(child), child); }
    });
    let place = old.firstChild;
    Array.from(fresh.childNodes).forEach(function (wanted) {
      const key = keyOf(wanted);
      const known = key === null ? null : keyed.get(wanted.nodeName + " " + key);
      if (known && known !== place) { old.insertBefore(known, place); place = known; }
      if (place && isAlike(place, wanted)) {
        morph(place, wanted);
        place = place.nextSibling;
      } else {
        old.insertBefore(document.importNode(wanted, true), place);
      }
    });
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) { old.nodeValue = fresh.nodeValue; }
      return;
    }
    morphAttributes(old, fresh);
    morphChildren(old, fresh);
  }

  function say(words, state) {
    const word = document.getElementById("live-word");
    if (word.textContent !== words) { word.textContent = words; }
    document.getElementById("live-dot").className = "status-dot " + state;
  }

  // A stream is open only while its page is looked at: browsers allow few connections to one server.
  function stream(address, listeners, lost) {
    let source = null;
    let again = null;
    function open() {
      window.clearTimeout(again);
      source = new EventSource(address);
      Object.keys(listeners).forEach(function (name) {
        source.addEventListener(name, function (event) { listeners[name](JSON.parse(event.data)); });
      });
      source.addEventListener("error", function () {
        lost();
        if (source && source.readyState === EventSource.CLOSED) { again = window.setTimeout(open, AGAIN_MS); }
      });
    }
    function close() {
      window.clearTimeout(again);
      if (source) { source.close(); source = null; }
    }
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) { close(); } else if (!source) { open(); }
    });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", function () { if (!source && !document.hidden) { open(); } });
    if (!document.hidden) { open(); }
  }

  function followPage(region) {
    stream(region.dataset.live, {
      page: function (data) {
        const fresh = new DOMParser().parseFromString("<div>" + data.html + "</div>", "text/html").body.firstChild;
        morphChildren(region, fresh);
        asOf(data.as_of);
        say("Live", "live");
      },
      as_of: function (data) { asOf(data.as_of); say("Live", "live"); },
      trouble: function (words) { say("Not live: " + words, "stale"); }
    }, function () { say("Not live: the connection is lost; trying again", "stale"); });
  }

  function followLog(log) {
    const follow = document.getElementById("log-follow");
    const note = document.getElementById("log-note");
    function show(text) {
      log.append(document.createTextNode(text));
      if (log.textContent.length > MOST_CHARACTERS) {
        const kept = log.textContent.slice(-MOST_CHARACTERS / 2);
        log.textContent = kept.slice(kept.indexOf("\n") + 1);
      }
      if (follow.checked) { log.scrollTop = log.scrollHeight; }
    }
    // Text is only ever put in as text; a style is a name of ours.
    function showRows(rows) {
      const fragment = document.createDocumentFragment();
      rows.forEach(function (row) {
        const line = document.createElement("div");
        line.className = "row row-" + row[0];
        line.textContent = row[1] + row[2] + "\n";
        fragment.append(line);
      });
      log.append(fragment);
      while (log.childElementCount > MOST_ROWS) { log.firstElementChild.remove(); }
      if (follow.checked) { log.scrollTop = log.scrollHeight; }
    }
    stream(log.dataset.live, {
      whole: function (data) {
        log.textContent = "";
        if (data.rows) { showRows(data.rows); } else { show(data.text); }
      },
      more: show,
      rows: showRows,
      note: function (words) { note.textContent = words; }
    }, function () { note.textContent = "The connection is lost; trying again."; });
  }

  document.addEventListener("DOMContentLoaded", function () {
    const region = document.getElementById("fragment");
    const log = document.getElementById("log");
    if (region) {
      const shown = document.getElementById("as-of").dateTime;
      clockOffset = Date.parse(shown) - Date.now();
      followPage(region);
      window.setInterval(tick, 1000);
    }
    if (log) { followLog(log); }
  });
}());
