const options = {
  mode: "vega-lite",
  renderer: "svg",
  actions: {export: {svg: true, png: true}, source: false, compiled: false, editor: false},
  // The page's policy allows no eval and no styles but page.css.
  ast: true,
  defaultStyle: false,
  forceActionsMenu: true,
  tooltip: {disableDefaultStyle: true},
};
const draw = (place) => {
  const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
  return vegaEmbed(place, spec, {...options, downloadFileName: place.id})
    .catch((error) => { place.textContent = "This picture could not be drawn: " + error.message; });
};
await Promise.all([...document.querySelectorAll("[data-spec]")].map(draw));
for (const menu of document.querySelectorAll(".vega-embed summary")) {
  menu.setAttribute("aria-label", "Save this chart");
}
// For who waits for it: tests, and programs that print.
document.documentElement.dataset.drawn = performance.now();
