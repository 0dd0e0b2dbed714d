// What worksheets say.

#include "explain/catalogue.h"

namespace qkv {
namespace {

constexpr Message kMessages[] = {
    // --- every format -----------------------------------------------------------------------
    {"worksheet.heading", "Worksheet: {}", "Phiếu bài tập: {}", "연습 문제지: {}", "练习题：{}"},
    {"worksheet.key_heading", "Answer key: {}", "Đáp án: {}", "정답: {}", "参考答案：{}"},
    {"worksheet.name", "Name", "Họ và tên", "이름", "姓名"},
    {"worksheet.date", "Date", "Ngày", "날짜", "日期"},
    {"worksheet.instructions",
     "Fill in every blank, step by step: each step needs only what stands above it. Where a step "
     "says to round, go on with the rounded numbers.",
     "Điền vào mọi ô trống, lần lượt từng bước: mỗi bước chỉ cần những gì ở phía trên. Ở bước yêu "
     "cầu làm tròn, hãy tính tiếp với các số đã làm tròn.",
     "빈칸을 단계별로 모두 채우시오. 각 단계에는 그 위에 있는 것만 필요하다. 반올림하라고 한 "
     "단계에서는 반올림한 수로 계속 계산한다.",
     "按步骤填写所有空格：每一步只用到它上面的内容。要求四舍五入的步骤，用舍入后的数继续计算。"},
    {"worksheet.given", "Given", "Cho trước", "주어진 것", "已知"},
    {"worksheet.steps", "Steps to fill in", "Các bước cần điền", "채울 단계", "填写步骤"},
    {"worksheet.key", "Answer key", "Đáp án", "정답", "参考答案"},
    {"worksheet.key_note",
     "True arithmetic, rounded only for printing. Who went on with rounded numbers may differ a "
     "little in the last decimals.",
     "Tính chính xác, chỉ làm tròn khi in. Nếu tính tiếp với số đã làm tròn, vài chữ số thập phân "
     "cuối có thể lệch chút ít.",
     "정확히 계산하고 인쇄할 때만 반올림했다. 반올림한 수로 계속 계산했다면 끝자리가 조금 다를 수 "
     "있다.",
     "按精确值计算，仅在印出时四舍五入。若用舍入后的数继续计算，末几位小数可能略有不同。"},
    {"worksheet.shape", "shape", "hình dạng", "모양", "形状"},
    {"worksheet.hint", "One entry written out", "Viết đầy đủ một phần tử", "원소 하나를 풀어 쓰면",
     "写出一个元素"},
    {"worksheet.round", "Round to {} decimals.", "Làm tròn đến {} chữ số thập phân.",
     "소수점 아래 {}자리까지 반올림한다.", "四舍五入到小数点后 {} 位。"},
    {"worksheet.minus_infinity", "Write −inf where the mask hides an entry.",
     "Ghi −inf ở chỗ mặt nạ che đi.", "마스크가 가리는 곳에는 −inf라고 쓴다.",
     "被掩码遮住的位置写 −inf。"},
    {"worksheet.head", "head {}", "đầu {}", "헤드 {}", "头 {}"},
    {"worksheet.channel", "channel {}", "kênh {}", "채널 {}", "通道 {}"},

    // --- exercises --------------------------------------------------------------------------
    {"worksheet.exercise.title", "Self-attention on small integers",
     "Tự chú ý với các số nguyên nhỏ", "작은 정수로 하는 셀프 어텐션", "小整数上的自注意力"},
    {"worksheet.exercise.intro",
     "Exercise {}. Each token (a row of X) is read three times: as a query, as a key and as a "
     "value. How much does each token listen to the others, and what does it get to hear?",
     "Bài số {}. Mỗi token (một hàng của X) được đọc ba lần: làm query, làm key và làm value. Mỗi "
     "token lắng nghe các token khác bao nhiêu, và nó nghe được gì?",
     "문제 {}번. 각 토큰(X의 한 행)은 세 번 읽힌다: 쿼리로, 키로, 값으로. 각 토큰은 다른 토큰에 "
     "얼마나 귀 기울이며, 무엇을 듣게 되는가?",
     "第 {} "
     "题。每个词元（X "
     "的一行）被读三次：作为查询、作为键、作为值。每个词元听取其他词元多少，又听到了"
     "什么？"},

    // --- spreadsheets -----------------------------------------------------------------------
    // Names of sheets: up to 31 characters, none of []:*?/\'.
    {"worksheet.sheet.exercise", "Exercise", "Bài tập", "문제", "练习"},
    {"worksheet.sheet.key", "Answer key", "Đáp án", "정답", "答案"},
    {"worksheet.xlsx.instructions",
     "Type numbers or formulas into the framed yellow cells: ✓ appears beside a right entry, ✗ "
     "beside a wrong one. The grey cells may be changed too: the answer key computes anew.",
     "Nhập số hoặc công thức vào các ô vàng có khung: bên cạnh hiện ✓ nếu đúng, ✗ nếu sai. Cũng có "
     "thể sửa các ô xám: đáp án sẽ tự tính lại.",
     "테두리가 있는 노란 칸에 수나 수식을 입력한다. 맞으면 옆에 ✓, 틀리면 ✗가 나타난다. 회색 칸도 "
     "바꿀 수 있으며, 그러면 정답이 다시 계산된다.",
     "在带框的黄色单元格中输入数字或公式：正确时旁边显示 ✓，错误时显示 "
     "✗。灰色单元格也可以修改，答案"
     "会重新计算。"},
    {"worksheet.xlsx.instructions_no_key", "Type numbers or formulas into the framed yellow cells.",
     "Nhập số hoặc công thức vào các ô vàng có khung.",
     "테두리가 있는 노란 칸에 수나 수식을 입력한다.", "在带框的黄色单元格中输入数字或公式。"},
    {"worksheet.xlsx.key_note",
     "Every number here is a formula on the given cells; look into a cell to see how it is made.",
     "Mỗi số ở đây là một công thức dựa trên các ô cho trước; hãy xem nội dung ô để biết cách "
     "tính.",
     "여기의 모든 수는 주어진 칸에 대한 수식이다. 칸을 눌러 어떻게 계산되는지 확인한다.",
     "这里的每个数都是基于已知单元格的公式；点开单元格即可看到算法。"},
    {"worksheet.xlsx.hint", "As a formula", "Dưới dạng công thức", "수식으로 쓰면", "写成公式"},
    {"worksheet.xlsx.exact", "exact", "chính xác", "정확히", "精确"},
    {"worksheet.xlsx.accepted", "accepted: ±{}", "chấp nhận: ±{}", "허용 오차: ±{}",
     "允许误差：±{}"},
    {"worksheet.xlsx.minus_infinity", "Choose −inf from the cell's list, or type inf.",
     "Chọn −inf trong danh sách của ô, hoặc gõ inf.",
     "칸의 목록에서 −inf를 고르거나 inf라고 입력한다.", "从单元格的列表中选 −inf，或输入 inf。"},
    {"worksheet.xlsx.correct", "right so far", "số ô đúng", "맞은 칸", "已填对"},
};

}  // namespace

std::span<const Message> worksheet_messages() noexcept { return kMessages; }

}  // namespace qkv
