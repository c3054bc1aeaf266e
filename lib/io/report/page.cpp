#include "io/report/page.h"

#include <fmt/format.h>

#include "io/report/chart.h"
#include "io/report/heat_map.h"

namespace lyceum {
namespace {

// The texts must not contain "<" or "&", since the page must be valid XML.

std::string_view report_style() {
  return R"css(
:root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--ink:#1c1d20;--soft:#6a6d74;--rule:#e4e4e0;--none:#8d8f94;
--train:#2f6bd6;--valid:#d86a0a;--worst:#b23a48;--level:#5b7a56;
--k0:#16324f;--k1:#1f5c7a;--k2:#1f8a8a;--k3:#3fae7c;--k4:#86c35c;--k5:#c9c23c;--k6:#e3a02b;--k7:#e0742a;
--r0:#2f6bd6;--r1:#d86a0a;--r2:#2c8a4b;--r3:#b23a48;--r4:#7b4fc0;--r5:#8a6a1c;--r6:#0f8a96;--r7:#c2479b}
@media (prefers-color-scheme:dark){:root{--page:#131416;--card:#1c1d20;--ink:#e9e9ec;--soft:#9b9ea6;--rule:#33353a;
--none:#6f727a;--train:#7fabff;--valid:#ffa04d;--worst:#ff8291;--level:#9cc795;
--k0:#b9d4ff;--k1:#79b8f0;--k2:#4fc0c8;--k3:#5cc79a;--k4:#93d06e;--k5:#d3cf5a;--k6:#efb04a;--k7:#f08a4b;
--r0:#7fabff;--r1:#ffa04d;--r2:#74cf91;--r3:#ff8291;--r4:#bb98f2;--r5:#d8b75c;--r6:#5fd0dc;--r7:#f08fcb}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 24px 56px}
h1{font-size:26px;line-height:1.2;margin:0 0 20px;overflow-wrap:anywhere}
h2{font-size:17px;margin:0}
p{margin:2px 0 0;color:var(--soft);max-width:90ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin-bottom:12px}
.tile,figure,.facts,.table{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.tile{padding:14px 18px}
.tile span{display:block;color:var(--soft);font-size:13px}
.tile strong{display:block;font-size:28px;line-height:1.25;font-weight:600;font-variant-numeric:tabular-nums}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(180px,1fr));gap:10px 28px;margin:0 0 12px;padding:16px 18px}
.facts dt{color:var(--soft);font-size:13px}
.facts dd{margin:0;overflow-wrap:anywhere}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:12px}
.pair figure{min-width:0}
figure{margin:0 0 12px;padding:18px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:8px;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:18px;height:0;border-top:3px solid var(--line);border-radius:2px;margin-right:6px;vertical-align:middle}
.plot{position:relative;height:300px;margin:16px 12px 44px 46px;touch-action:pan-y}
.pair .plot{height:230px}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible;display:block}
.plot b{position:absolute;font-size:12px;font-weight:400;line-height:1;color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums;pointer-events:none}
b.y{right:100%;margin-right:8px;transform:translateY(50%)}
b.x{top:100%;margin-top:9px;transform:translateX(-50%)}
b.x.name{margin-top:28px;left:50%}
b.row-name{right:100%;bottom:100%;margin:0 8px 10px 0;transform:none}
b.level{right:0;padding-bottom:5px;color:var(--level)}
b.level.below{padding:5px 0 0;transform:translateY(100%)}
path{fill:none;vector-effect:non-scaling-stroke;stroke-linecap:round;stroke-linejoin:round}
.grid{stroke:var(--rule);stroke-width:1}
.level{stroke:var(--level);stroke-width:1.5;stroke-dasharray:6 5}
.line{stroke:var(--line);stroke-width:2}
.line.raw{stroke-width:1;opacity:.35}
.dots{stroke:var(--line);stroke-width:6}
.train,.mean{--line:var(--train)}.valid{--line:var(--valid)}.worst{--line:var(--worst)}.bad{--line:var(--worst)}
.k0{--line:var(--k0)}.k1{--line:var(--k1)}.k2{--line:var(--k2)}.k3{--line:var(--k3)}
.k4{--line:var(--k4)}.k5{--line:var(--k5)}.k6{--line:var(--k6)}.k7{--line:var(--k7)}
.r0{--line:var(--r0)}.r1{--line:var(--r1)}.r2{--line:var(--r2)}.r3{--line:var(--r3)}
.r4{--line:var(--r4)}.r5{--line:var(--r5)}.r6{--line:var(--r6)}.r7{--line:var(--r7)}
.line.dash1{stroke-dasharray:9 5}.line.dash2{stroke-dasharray:2 5}
.dash1 i{border-top-style:dashed}.dash2 i{border-top-style:dotted}
.plot.heat{margin-top:34px}
.plot.map{margin:24px 20px 26px 34px}
.map b.row-name{right:auto;left:0;margin:0 0 5px}
.plot.map img,.strip img{display:block;width:100%;height:100%;image-rendering:pixelated}
.strip{height:12px}
@media (prefers-color-scheme:dark){.plot.map img,.strip img{filter:invert(1) hue-rotate(180deg)}}
.alarms{margin:0 0 12px;padding:14px 18px;border:1px solid var(--worst);border-left-width:6px;border-radius:10px;background:var(--card)}
.alarms h2{color:var(--worst)}
.alarms ul{margin:6px 0 0;padding-left:18px;max-height:320px;overflow:auto}
.alarms a{color:inherit}
.alarms.calm{border-color:var(--level)}.alarms.calm h2{color:var(--level)}
details{margin-top:8px}
summary{cursor:pointer;color:var(--soft);font-size:13px}
.config{margin:0 0 12px}
.config pre,.missing{padding:14px 18px;margin:8px 0 12px;background:var(--card);border:1px solid var(--rule);border-radius:10px;overflow:auto;font-size:13px;max-width:none}
.layers{margin:24px 0 12px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));gap:12px;margin-top:12px}
.card{min-width:0;padding:14px 16px;background:var(--card);border:1px solid var(--rule);border-radius:10px}
.card.alarmed{border:2px solid var(--worst)}
.card.alarmed>p:not(.numbers){color:var(--worst)}
.card:has(details[open]){grid-column:1/-1}
.card h3,.card h4{font-size:15px;margin:0;scroll-margin-top:12px}
.card h4{font-size:13px;font-weight:400;margin-top:10px}
.card .numbers{font-size:13px}
.card figure{border:0;padding:0;margin:12px 0 0;min-width:0}
.starved{margin:8px 0;padding-left:18px;font-size:13px;max-height:240px;overflow:auto}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));gap:0 12px}
.trio{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(280px,100%),1fr));gap:0 12px}
.trio .plot{height:180px}.trio b.odd{display:none}
.key.raw i{opacity:.4}
rect:hover{stroke:var(--ink);stroke-width:2px;vector-effect:non-scaling-stroke}
rect.none{fill:var(--none)}
.scale .cells{display:flex}
.scale i{width:15px;height:12px;display:block}
.scale i.none{background:var(--none);width:24px}
.scale .marks{display:flex;justify-content:space-between;font-size:12px}
.table{padding:18px 0 6px}
.table h2,.table p{margin-left:18px;margin-right:18px}
.scroll{overflow:auto;max-height:560px;margin-top:8px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 18px;text-align:right;white-space:nowrap}
thead th{position:sticky;top:0;background:var(--card);box-shadow:inset 0 -1px var(--rule);font-weight:600}
tbody th{text-align:left;font-weight:400}
thead th:first-child{text-align:left}
tbody tr.first td,tbody tr.first th{border-top:1px solid var(--rule)}
.cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);pointer-events:none}
.tip{position:absolute;top:4px;z-index:1;padding:6px 10px;border:1px solid var(--rule);border-radius:6px;background:var(--card);
font-size:12px;line-height:1.5;white-space:nowrap;pointer-events:none;box-shadow:0 2px 8px rgba(0,0,0,.15);font-variant-numeric:tabular-nums}
.tip .key{display:block}
.pair figure:last-child:nth-child(odd){grid-column:1/-1}
@media (max-width:860px){.pair{grid-template-columns:1fr;gap:0}}
@media (max-width:600px){main{padding:18px 10px 40px}h1{font-size:21px;margin-bottom:14px}figure{padding:14px 10px}
.plot{height:240px}.facts{grid-template-columns:1fr 1fr;padding:14px 10px}.card{padding:12px 10px}b.odd{display:none}th,td{padding:5px 10px}.table h2,.table p{margin-left:10px;margin-right:10px}.tile strong{font-size:23px}
.tiles{grid-template-columns:1fr 1fr;gap:8px}}
)css";
}

std::string_view report_script() {
  return R"js(
for (const plot of document.querySelectorAll('.plot[data-lines]')) {
  const {low, high, name} = plot.dataset, lines = JSON.parse(plot.dataset.lines);
  const add = (parent, tag, style, text) => {
    const element = document.createElement(tag);
    element.className = style;
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const nearest = (points, x) => points.reduce((a, b) => Math.abs(a[0] - x) > Math.abs(b[0] - x) ? b : a);
  const filled = lines.filter(line => line.points.length);
  const cursor = add(plot, 'i', 'cursor', ''), tip = add(plot, 'div', 'tip', '');
  const hide = () => { cursor.hidden = tip.hidden = true; };
  hide();
  plot.addEventListener('pointerleave', hide);
  plot.addEventListener('pointermove', event => {
    const box = plot.getBoundingClientRect();
    const pointed = +low + (high - low) * (event.clientX - box.left) / box.width;
    const x = nearest(filled.map(line => nearest(line.points, pointed)), pointed)[0];
    const share = (x - low) / (high - low);
    tip.replaceChildren();
    add(tip, 'strong', '', name + ' ' + x);
    for (const line of filled) {
      const point = nearest(line.points, x);
      const row = add(tip, 'span', 'key ' + line.style, '');
      add(row, 'i', '', '');
      const value = typeof point[1] === 'string' ? point[1] : +point[1].toPrecision(5);
      row.append(line.name + ' ' + value + (point[0] === x ? '' : ' (' + name + ' ' + point[0] + ')'));
    }
    cursor.hidden = tip.hidden = false;
    cursor.style.left = 100 * share + '%';
    tip.style.left = share > 0.5 ? 'auto' : 'calc(' + 100 * share + '% + 10px)';
    tip.style.right = share > 0.5 ? 'calc(' + 100 * (1 - share) + '% + 10px)' : 'auto';
  });
}
const loads = new Map();  // what a colour of the maps means
for (const strip of document.querySelectorAll('[data-cells] img')) {
  strip.decode().then(() => {
    const names = strip.closest('[data-cells]').dataset.cells.split('|');
    const canvas = pixels(strip);
    names.forEach((name, i) => loads.set(canvas.getImageData(i, 0, 1, 1).data.join(), name));
  });
}
function pixels(image) {
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(image, 0, 0);
  return context;
}
const steps = (document.querySelector('.layers')?.dataset.steps || '').split(',');
for (const map of document.querySelectorAll('.map')) {
  const image = map.querySelector('img');
  let context;
  map.addEventListener('pointermove', event => {
    context ??= pixels(image);
    const box = image.getBoundingClientRect();
    const at = (offset, size, count) => Math.max(0, Math.min(count - 1, Math.floor(count * offset / size)));
    const x = at(event.clientX - box.left, box.width, context.canvas.width);
    const y = at(event.clientY - box.top, box.height, context.canvas.height);
    const load = loads.get(context.getImageData(x, y, 1, 1).data.join());
    image.title = 'step ' + steps[x] + ', ' + map.dataset.row + ' ' + map.dataset.rows.split(',')[y] + (load ? ': ' + load : '');
  });
}
)js";
}

}  // namespace

std::string fact_list(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html;
  for (const auto& [name, value] : facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_xml(name), escape_xml(value));
  }
  return html.empty() ? html : fmt::format("<dl class=\"facts\">\n{}</dl>\n", html);
}

std::string html_page(const std::string& title, const std::string& body) {
  std::string heat_classes;
  for (std::size_t bin = 0; bin < heat_bins; ++bin) {
    heat_classes += fmt::format(".h{0}{{fill:var(--h{0});background:var(--h{0})}}", bin);
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n"
      "<style>{}:root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n{}\n</style>\n</head>\n<body>\n"
      "<main>\n{}</main>\n<script>{}</script>\n</body>\n</html>\n",
      escape_xml(title), report_style(), heat_colours(false), heat_colours(true), heat_classes, body, report_script());
}

}  // namespace lyceum
