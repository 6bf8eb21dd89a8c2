"use strict";
const root = document.documentElement;
const content = (box) => JSON.parse(document.getElementById(box.dataset.content).textContent);

// Light and dark: as the system says, until the button is pressed.
const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
const name = () => { theme.textContent = isDark() ? "light" : "dark"; };
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
dark.addEventListener("change", name);
theme.hidden = false;
name();

// A slider with buttons. `show(i)` shows thing i, and returns what to call it.
function stepper(box, show) {
  const controls = box.querySelector(".stepper");
  const [slider, back, forth] = ["input", ".back", ".forth"].map((what) => controls.querySelector(what));
  const last = Number(slider.max);
  const go = (i) => {
    slider.value = Math.min(Math.max(i, 0), last);
    slider.setAttribute("aria-valuetext", show(Number(slider.value)));
    back.disabled = slider.value === "0";
    forth.disabled = Number(slider.value) === last;
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  back.addEventListener("click", () => go(Number(slider.value) - 1));
  forth.addEventListener("click", () => go(Number(slider.value) + 1));
  controls.hidden = false;
  return { go, last, at: () => Number(slider.value), controls };
}

for (const box of document.querySelectorAll(".gallery")) {
  if (!box.querySelector(".stepper")) continue;
  const { images, shelves } = content(box);
  const figures = [...box.querySelectorAll(".tiles figure")];
  const [title, told] = [".told output", ".told span"].map((what) => box.querySelector(what));
  const show = (i) => {
    const shelf = shelves[i];
    title.textContent = shelf.title;
    told.textContent = shelf.told;
    figures.forEach((figure, j) => {
      figure.hidden = j >= shelf.levels.length;
      if (figure.hidden) return;
      const [image, score, words] = shelf.levels[j];
      figure.querySelector("img").src = images[image];
      figure.querySelector("b").textContent = score;
      figure.querySelector("figcaption span").textContent = words;
    });
    return shelf.title;
  };
  const steps = stepper(box, show);
  steps.go(steps.last);
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint32Array(await new Response(stream).arrayBuffer());
}

// An episode: the tiles on the canvas, and of each moment those that change.
function player(box, tiles, image, { n, width, height }, changes) {
  const { size, columns } = tiles;
  const across = Math.ceil(width / size);
  const starts = [0];
  for (let i = 0; i < n; i++) starts.push(starts[i] + 1 + 2 * changes[starts[i]]);
  const at = (time) => {
    const grid = new Uint32Array(across * Math.ceil(height / size));
    for (let i = 0; i <= time; i++) {
      for (let j = starts[i] + 1; j < starts[i + 1]; j += 2) grid[changes[j]] = changes[j + 1];
    }
    return grid;
  };
  const paint = box.querySelector("canvas").getContext("2d");
  const output = box.querySelector("output");
  let drawn = null;
  const show = (time) => {
    const grid = at(time);
    grid.forEach((tile, i) => {
      if (drawn && drawn[i] === tile) return;
      const [x, y] = [i % across, Math.floor(i / across)].map((place) => place * size);
      const [left, top] = [tile % columns, Math.floor(tile / columns)].map((place) => place * size);
      paint.clearRect(x, y, size, size);
      paint.drawImage(image, left, top, size, size, x, y, size, size);
    });
    drawn = grid;
    return (output.textContent = `step ${time} of ${n - 1}`);
  };
  const steps = stepper(box, show);
  const play = steps.controls.querySelector(".play");
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "play"; };
  const start = () => {
    if (steps.at() === steps.last) steps.go(0);
    play.textContent = "pause";
    // Long episodes go faster, so that none takes half a minute.
    timer = setInterval(() => {
      steps.go(steps.at() + 1);
      if (steps.at() === steps.last) stop();
    }, Math.min(Math.max(20000 / n, 40), 160));
  };
  play.addEventListener("click", () => (timer ? stop() : start()));
  steps.controls.addEventListener("pointerdown", (event) => { if (event.target !== play) stop(); });
  steps.controls.addEventListener("keydown", (event) => {
    if (event.key === " " && event.target.tagName === "INPUT") { event.preventDefault(); play.click(); }
    else if (event.target !== play) stop();
  });
  steps.go(0);
}

async function players() {
  const boxes = [...document.querySelectorAll(".player")];
  if (!boxes.length) return;
  const tiles = JSON.parse(document.getElementById("tiles").textContent);
  const image = new Image();
  image.src = tiles.image;
  await image.decode();
  for (const box of boxes) {
    const reel = content(box);
    player(box, tiles, image, reel, await unpacked(reel.changes));
  }
}
players().then(() => { root.dataset.ready = "yes"; });

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
